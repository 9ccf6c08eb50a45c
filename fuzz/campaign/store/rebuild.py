"""Makes the store's findings again from the corpus, which is their truth."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.store.store import Store
from fuzz.campaign.store.tables import Campaign, FindingRecord, Occurrence
from fuzz.errors import CorpusError, os_errors_as
from fuzz.model.entry import Entry

ENTRY_KEY = "entry"
"""Key of the occurrence that an entry itself records."""
BATCH = 256
"""Findings that are written in one transaction, which waits for the disk once, and keeps other writers out so long."""

REPLACE_SECONDS = 30.0
"""Seconds in which a campaign that gives an entry a smaller case, and so another name, writes that to the store."""


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


def entry_id(path: Path) -> str:
    """The id of the finding of an entry."""
    return path.name.removesuffix(".yaml")


def finding_of(entry: Entry, path: Path, folder: Path, wall: float) -> FindingRecord:
    """The record of an entry, which must have a finding; `wall` is when it was seen, in seconds since 1970."""
    finding = entry.finding
    assert finding is not None
    return FindingRecord(
        id=entry_id(path),
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


def entries_in(folder: Path) -> Iterator[Path]:
    """The files of a corpus folder that are entries, without links out of it and those that are gone by now."""
    for path in corpus.entry_files([folder]) if os.path.isdir(folder) else ():
        if is_entry_in(path, folder):
            yield path


def is_entry_in(path: Path, folder: Path) -> bool:
    """Whether there is such a file, inside of the folder: what a link leads to elsewhere is nobody's to read."""
    try:
        return path.resolve().is_relative_to(folder.resolve()) and path.exists()
    except OSError:
        return False


def rebuild(store: Store, folder: Path, others: Container[str] = ()) -> RebuildResult:
    """Writes every finding of a corpus folder into the store, and forgets those whose entry is gone.

    Rows of other folders stay. A finding that the store lacked was first seen when its entry's file was written.
    Occurrences that campaigns wrote are kept. `others` are ids of findings that are another folder's, though this one
    has entries of that name, too.
    """
    present = set[str]()
    added, unreadable = list[FindingRecord](), list[str]()
    # Of two entries of one name, in the folders of two targets, pages show the first.
    first = {entry_id(path): path for path in reversed(list(entries_in(folder)))}
    paths = [first[name] for name in reversed(first) if name not in others]
    for start in range(0, len(paths), BATCH):
        entries = dict(_read_entries(paths[start : start + BATCH], unreadable))
        known = store.read_findings([entry_id(path) for path in entries])
        changes = {path: _change(*entries[path], path, folder, known.get(entry_id(path))) for path in entries}
        writes = {path: change for path, change in changes.items() if change is not None}
        refused = dict(zip(writes, store.save_findings(list(writes.values())), strict=True))
        for path in entries:
            if (error := refused.get(path)) is not None:
                unreadable.append(f"{path}: {error}")
                continue
            present.add(entry_id(path))
            if path in writes and writes[path][1] is not None:
                added.append(writes[path][0])
    saved = store.findings(limit=1 << 31, corpus=str(folder.resolve()))
    forgotten = forget_deleted(store, [row for row in saved if row.id not in present])
    return RebuildResult(len(present), tuple(added), forgotten, tuple(unreadable))


def forget_deleted(store: Store, findings: Sequence[FindingRecord]) -> int:
    """Removes those of the store's findings whose entries were deleted; how many.

    For a moment an entry is gone also where a campaign gives it a smaller case. Then its finding is kept: the campaign
    is about to rename it.
    """
    replacing = {str(Path(campaign.corpus).resolve()) for campaign in store.read(Campaign, state="running")}
    forgotten = 0
    for finding in findings:
        folder = Path(finding.corpus)
        path = folder / finding.path
        if not is_entry_in(path, folder) and not (finding.corpus in replacing and _has_just_changed(path.parent)):
            store.remove(FindingRecord, id=finding.id)
            forgotten += 1
    return forgotten


def _has_just_changed(folder: Path) -> bool:
    """Whether a file may have been renamed in a folder within the last REPLACE_SECONDS."""
    try:
        # A clock may go on behind that of a file server.
        return abs(time.time() - folder.stat().st_mtime) < REPLACE_SECONDS
    except OSError:
        return False  # A campaign removes no folders.


def save_entry(store: Store, path: Path, folder: Path, entry: Entry) -> None:
    """Writes the finding of one entry of a corpus folder, as `rebuild` writes those of all."""
    with os_errors_as(CorpusError, f"cannot read {path}"):
        changed = path.stat().st_mtime
    change = entry.finding and _change(entry, changed, path, folder, store.find(FindingRecord, entry_id(path)))
    if change:
        store.save_finding(*change)


def _read_entries(paths: Sequence[Path], unreadable: list[str]) -> Iterator[tuple[Path, tuple[Entry, float]]]:
    """Entries that have a finding, with when their files were written; says of the others what is wrong with them."""
    for path in paths:
        try:
            entry, changed = corpus.read(path), path.stat().st_mtime
        except (CorpusError, FileNotFoundError) as error:
            # One that is gone got a smaller case, and another name, meanwhile.
            if os.path.exists(path):
                unreadable.append(str(error))
            continue
        if entry.finding is not None:
            yield path, (entry, changed)


def _change(
    entry: Entry, changed: float, path: Path, folder: Path, known: FindingRecord | None
) -> tuple[FindingRecord, Occurrence | None] | None:
    """What to write of an entry: nothing where the store has it as it is, with an occurrence where it lacks it."""
    finding = finding_of(entry, path, folder, changed)
    if known is None:
        seen = entry.provenance
        seed, case = seen.seed or 0, seen.first_case or 0
        occurrence = Occurrence(
            finding.id, ENTRY_KEY, changed, backend=seen.backend, seed=seed, case=case, seen=seen.fields()
        )
        return finding, occurrence
    finding, first = replace(finding, last_seen=known.last_seen), min(finding.first_seen, known.first_seen)
    stored = replace(finding, first_seen=first, hits=known.hits, replayed=known.replayed)
    return None if stored == known else (finding, None)
