"""Rebuild: the store's findings made again from the corpus, which is their truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.store.records import Finding, Occurrence
from fuzz.campaign.store.store import Store
from fuzz.errors import CorpusError
from fuzz.model.entry import Entry
from fuzz.model.finding import Verdict

TOLD = "entry"
"""Key of the occurrence that an entry itself tells."""


@dataclass(frozen=True)
class Rebuilt:
    """What came of it: how many findings the corpus has, those that the store lacked, how many rows had no entry."""

    findings: int
    added: tuple[Finding, ...]
    forgotten: int
    unreadable: tuple[str, ...]


def finding_of(entry: Entry, path: Path, folder: Path, wall: float) -> Finding:
    """An entry as the store tells it; `wall` is when it was seen."""
    assert entry.finding is not None
    found = entry.finding
    return Finding(
        id=path.name.removesuffix(".yaml"),
        corpus=str(folder.resolve()),
        path=path.relative_to(folder).as_posix(),
        target=entry.case.target,
        oracle=found.oracle,
        output=found.output,
        symptom=found.symptom,
        message=found.message,
        verdict=Verdict.recalled(entry.seen).name,
        status=entry.status,
        planted=entry.planted,
        dims=dict(entry.case.last.dims),
        elements=entry.case.elements(),
        diagnosis=entry.seen.get("diagnosis", ""),
        first_seen=wall,
        last_seen=wall,
    )


def rebuild(store: Store, folder: Path) -> Rebuilt:
    """Writes every finding of a corpus folder into the store, and forgets those whose entry is gone.

    Rows of other folders stay. An entry's file tells when it was seen first. Occurrences that campaigns wrote are kept.
    """
    there: set[str] = set()
    added, unreadable = [], []
    for path in corpus.entry_files([folder]) if folder.is_dir() else ():
        try:
            entry, changed = corpus.read(path), path.stat().st_mtime
        except FileNotFoundError:
            continue  # A campaign put a smaller case in its place meanwhile.
        except CorpusError as error:
            unreadable.append(str(error))
            continue
        if entry.finding is None:
            continue
        made = finding_of(entry, path, folder, changed)
        old = store.finding(made.id)
        store.save_finding(replace(made, last_seen=old.last_seen) if old else made, None if old else told(entry, made))
        there.add(made.id)
        if old is None:
            added.append(made)
    kept = store.findings(limit=1 << 31, corpus=str(folder.resolve()))
    # One that is there now was saved by a campaign meanwhile.
    gone = [found.id for found in kept if found.id not in there and not (folder / found.path).exists()]
    for name in gone:
        store.remove_finding(name)
    return Rebuilt(len(there), tuple(added), len(gone), tuple(unreadable))


def told(entry: Entry, finding: Finding) -> Occurrence:
    """The one time that an entry itself tells of."""
    seen, first = entry.seen, entry.seen.get("first_case", "")
    seed = seen.get("seed", "")
    return Occurrence(
        finding.id,
        TOLD,
        finding.first_seen,
        backend=seen.get("backend", ""),
        seed=int(seed) if seed.isdecimal() else 0,
        case=int(first) if first.isdecimal() else 0,
        seen=dict(seen),
    )
