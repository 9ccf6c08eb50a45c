"""Fuzzes a target with the library on the path.

python -m benchmarks.archaeology.search TARGET FOLDER SECONDS CASES

A run as that of `fuzz run --backend cpu`, which saves what it finds in the folder, but grades nothing and asks no other
backend: most of what it finds shows in the newer release as well, and is of no interest. A limit of 0 is none. Prints
the JSON value of the run, or of its `error`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fuzz.errors import FuzzError, one_line
from fuzz.report.json import run_json
from fuzz.run import environment
from fuzz.run.finding_handler import FindingHandler
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.setup import load_checked_target
from fuzz.run.watcher import Watcher
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline

BACKEND = "cpu"


class Searcher(Fuzzer):
    """A fuzzer that does not grade."""

    def make_handler(self, triage: Triage, known: list[Bug], deadline: Deadline) -> FindingHandler:
        handler = super().make_handler(triage, known, deadline)
        handler.with_grades = False
        return handler


def search(target: str, folder: Path, seconds: float, cases: int) -> dict[str, object]:
    """The JSON value of a run."""
    options = RunOptions(target, backend=BACKEND, seconds=seconds or None, cases=cases or None, corpus=folder)
    loaded = load_checked_target(target, None, BACKEND)
    result = Searcher(
        options, loaded, BACKEND, folder, Watcher(), environment.versions(),
        with_cross_checks=False, allow_all_rejected=True,
    ).run()  # fmt: skip
    return dict(run_json(result, profile=True))


def main(target: str, folder: str, seconds: str, cases: str) -> None:
    """Prints what a search gave, or why it gave nothing."""
    try:
        ran = search(target, Path(folder), float(seconds), int(cases))
    except FuzzError as error:
        ran = {"error": one_line(error), "findings": []}
    print(json.dumps(ran))


if __name__ == "__main__":
    main(*sys.argv[1:])
