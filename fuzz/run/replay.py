"""Replaying: whether a saved case still shows what it was saved for."""

from __future__ import annotations

from pathlib import Path

from fuzz.backends import DEFAULT
from fuzz.model.entry import Entry
from fuzz.model.oracles import ACCURACY, SAMPLED_ORACLES
from fuzz.model.rate import Rate
from fuzz.run.options import RunOptions
from fuzz.target.loader import check_fits, find_target, load_planted
from fuzz.target.spec import Target
from fuzz.triage.triage import Triage
from fuzz.worker.process import Worker
from fuzz.worker.protocol import HANDLER, WorkerConfig


def target_of(entry: Entry, path: Path, given: str) -> tuple[str, Target]:
    """(what to load it by, an entry's target); checked to take the entry's case and to have its planted bug."""
    text, loaded = find_target(entry.case.target, path, given)
    check_fits(entry.case, loaded, path)
    if entry.planted:
        load_planted(loaded, entry.planted)
    return text, loaded


def reproduces(entry: Entry, text: str, target: Target, backend: str) -> bool:
    """Whether the entry's case is still filed as the same bug; a seed case, whether anything disagrees."""
    with open_triage(entry, text, target, backend) as triage:
        if entry.finding is None:
            return triage.examine(entry.case, ACCURACY.name, clean=True).primary_finding is not None
        like, rate = entry.finding.as_accuracy, entry.provenance.rate or Rate()
        several = len(entry.case.calls) > 1
        return any(triage.reproduce(entry.case, like, clean=True, stateful=several) for _ in range(rate.runs_to_decide))


def own_backend(entry: Entry, other: str) -> str:
    """The backend that an entry was seen on where that is the default, which runs anywhere, or the other one."""
    return DEFAULT.name if entry.provenance.backend == DEFAULT.name else other


def elsewhere(entry: Entry, backend: str, disagrees: bool) -> bool:
    """Whether an open entry agrees on another backend than it was seen on, which says nothing of that one."""
    return entry.status == "open" and not disagrees and (entry.provenance.backend or backend) != backend


def open_triage(entry: Entry, text: str, target: Target, backend: str) -> Triage:
    """Triage of an entry's target, with its planted bug."""
    worker = Worker(
        HANDLER, WorkerConfig(text, entry.planted or None, backend), RunOptions(text).worker_memory, target.timeout
    )
    return Triage(target, worker, SAMPLED_ORACLES)
