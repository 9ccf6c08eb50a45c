"""Makes the store's findings again from the corpus, which is their truth."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.store.store import Store
from fuzz.campaign.store.tables import FindingRecord, Occurrence
from fuzz.errors import CorpusError, RefusedWrite
from fuzz.model.entry import Entry

ENTRY_KEY = "entry"
"""Key of the occurrence that an entry itself records."""


@dataclass(frozen=True)
class RebuildResult:
    """How many findings the corpus has, which ones the store lacked, how many rows had no entry, what is unreadable.

    What is unreadable cannot be read as an entry, or cannot be held by the store.
    """

    findings: int
    added: tuple[FindingRecord, ...]
    forgotten: int
    unreadable: tuple[str, ...]


def entry_status(finding: FindingRecord) -> str:
    """The status of a finding's entry, which somebody may have marked since the finding was written to the store."""
    try:
        return corpus.read(Path(finding.corpus) / finding.path).status
    except CorpusError:
        return finding.status


def finding_of(entry: Entry, path: Path, folder: Path, wall: float) -> FindingRecord:
    """The record of an entry, which must have a finding; `wall` is when it was seen, in seconds since 1970."""
    finding = entry.finding
    assert finding is not None
    return FindingRecord(
        id=path.name.removesuffix(".yaml"),
        corpus=str(folder.resolve()),
        path=path.relative_to(folder).as_posix(),
        target=entry.case.target,
        oracle=finding.oracle,
        output=finding.output,
        symptom=finding.symptom,
        message=finding.message,
        verdict=entry.provenance.adjudication.name,
        status=entry.status,
        planted=entry.planted,
        dims=dict(entry.case.last.dims),
        elements=entry.case.elements(),
        diagnosis="; ".join(entry.provenance.diagnosis),
        first_seen=wall,
        last_seen=wall,
        severity=entry.severity or "",
        input_class=entry.grade.input_class if entry.grade else "",
    )


def rebuild(store: Store, folder: Path) -> RebuildResult:
    """Writes every finding of a corpus folder into the store, and forgets those whose entry is gone.

    Rows of other folders stay. A finding that the store lacked was first seen when its entry's file was written.
    Occurrences that campaigns wrote are kept.
    """
    present: set[str] = set()
    added, unreadable = [], []
    for path in corpus.entry_files([folder]) if os.path.isdir(folder) else ():
        try:
            entry, changed = corpus.read(path), path.stat().st_mtime
        except FileNotFoundError:
            continue  # A campaign put a smaller case in its place meanwhile.
        except CorpusError as error:
            unreadable.append(str(error))
            continue
        if entry.finding is None:
            continue
        finding = finding_of(entry, path, folder, changed)
        known = store.find(FindingRecord, finding.id)
        try:
            if known is None:
                seen = entry.provenance
                seed, case = seen.seed or 0, seen.first_case or 0
                occurrence = Occurrence(
                    finding.id, ENTRY_KEY, changed, backend=seen.backend, seed=seed, case=case, seen=seen.fields()
                )
                store.save_finding(finding, occurrence)
                added.append(finding)
            else:
                store.save_finding(replace(finding, last_seen=known.last_seen))
        except RefusedWrite as error:
            unreadable.append(f"{path}: {error}")
            continue
        present.add(finding.id)
    saved = store.findings(limit=1 << 31, corpus=str(folder.resolve()))
    # An entry that is there now was saved by a campaign meanwhile.
    gone = [row.id for row in saved if row.id not in present and not (folder / row.path).exists()]
    for name in gone:
        store.remove(FindingRecord, id=name)
    return RebuildResult(len(present), tuple(added), len(gone), tuple(unreadable))
