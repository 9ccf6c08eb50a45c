"""Drawing: entries to studies, each target's entries in one worker. A target that cannot be loaded is told in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fuzz.config import Run
from fuzz.entry import Entry
from fuzz.errors import UsageError, one_line
from fuzz.loader import check_fits, planted
from fuzz.outcome import describe
from fuzz.pages.portrait import Portrait
from fuzz.pages.sitting import STUDIO, Sitting, Study
from fuzz.question import Setting
from fuzz.target import Target
from fuzz.worker import Fate, Worker

SLACK = 60.0
"""Seconds beyond the target's timeout that drawing one entry may take, for its references."""
Locate = Callable[[Entry, Path], tuple[str, Target]]
"""What to load an entry's target by, and the target. UsageError where there is none."""


def studies(given: Sequence[tuple[Path, Entry, str]], backend: str, locate: Locate) -> Iterator[Study]:
    """The study of each (path, entry, command that repeats it), in order; neighbours of one setting share a worker."""
    worker: Worker | None = None
    try:
        for path, entry, repeat in given:
            try:
                text, target = fitting(entry, path, locate)
                setting = Setting(text, entry.planted or None, backend)
                if worker is None or worker.settings != setting:
                    worker = renewed(worker, setting, target)
                yield answered(worker, Sitting(entry, repeat))
            except UsageError as error:
                yield Study(Portrait(why=one_line(error)), why="its target cannot be run here")
    finally:
        if worker is not None:
            worker.stop()


def fitting(entry: Entry, path: Path, locate: Locate) -> tuple[str, Target]:
    """The entry's target, checked to take its case and to have its planted bug."""
    text, target = locate(entry, path)
    check_fits(entry.case, target, path)
    if entry.planted:
        planted(target, entry.planted)
    return text, target


def renewed(old: Worker | None, setting: Setting, target: Target) -> Worker:
    if old is not None:
        old.stop()
    return Worker(STUDIO, setting, Run(setting.target).resident, target.timeout + SLACK)


def answered(worker: Worker, sitting: Sitting) -> Study:
    answer = worker.ask(sitting)
    if isinstance(answer, Fate):
        return Study(Portrait(why=f"nothing to draw: {describe(answer.outcome)}"), why="the worker ended")
    assert isinstance(answer, Study)
    return answer
