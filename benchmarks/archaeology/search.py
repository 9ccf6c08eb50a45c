"""Runs cases of a target with the library on the path, and keeps what disagrees.

python -m benchmarks.archaeology.search TARGET FOLDER SECONDS CASES

Runs the cases that `fuzz run --backend cpu` runs, but confirms, shrinks and grades nothing: most of what disagrees
shows in the newer release as well, and is of no interest. Some of the disagreeing cases are saved as entries in the
folder. A limit of 0 is none. Prints the JSON value of the run, or of its `error`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.archaeology.replay import BACKEND
from fuzz import corpus
from fuzz.errors import FuzzError, one_line
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.provenance import Provenance
from fuzz.report.json import run_json
from fuzz.run import environment
from fuzz.run.findings.finding_handler import FindingHandler, without_later_calls
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.setup import load_checked_target
from fuzz.run.watcher import Watcher
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline

MOST_ALIKE, MOST_OF_SIGN, MOST_KEPT = 2, 8, 60
"""Cases that are kept with the same options and dtypes, of the same oracle, outputs and symptom, and of a search."""


@dataclass(frozen=True)
class Disagreement:
    """A finding in case number `index`."""

    index: int
    case: Case
    finding: Finding

    @property
    def sign(self) -> tuple[object, ...]:
        """Oracle, outputs and symptom."""
        return self.finding.oracle, self.finding.outputs, self.finding.symptom

    @property
    def options(self) -> tuple[object, ...]:
        """The source line, and the options of the first call."""
        return self.finding.source_line, tuple(self.case.calls[0].options.items())

    @property
    def alike(self) -> tuple[object, ...]:
        """The sign, the options, and the first call's arguments with their dtypes."""
        given = self.case.calls[0].arguments.items()
        return *self.sign, *self.options, tuple((name, value.dtype) for name, value in given)


def take_turns(groups: Sequence[Sequence[Disagreement]]) -> list[Disagreement]:
    """The first of each group, then the second of each, and so on."""
    longest = max(map(len, groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)]


def grouped(seen: Iterable[Disagreement], key: Callable[[Disagreement], object]) -> list[list[Disagreement]]:
    """Those with the same key together, each group in the order of the cases."""
    groups = defaultdict[object, list[Disagreement]](list)
    for one in sorted(seen, key=lambda one: one.index):
        groups[key(one)].append(one)
    return list(groups.values())


def choose(seen: Iterable[Disagreement]) -> list[Disagreement]:
    """Of all disagreements those that are kept, as many different ones as may be."""
    signs = list[list[Disagreement]]()
    for of_sign in grouped(seen, lambda one: one.sign):
        of_options = grouped(of_sign, lambda one: one.options)
        turns = [
            take_turns([alike[:MOST_ALIKE] for alike in grouped(one, lambda one: one.alike)]) for one in of_options
        ]
        signs.append(take_turns(turns)[:MOST_OF_SIGN])
    return take_turns(signs)[:MOST_KEPT]


class Keeper(FindingHandler):
    """Notes what disagrees, and triages nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = defaultdict[object, list[Disagreement]](list)

    def handle(
        self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case], put: float | None = None
    ) -> tuple[()]:
        """Notes the first finding of a case, and others of another oracle or of other outputs."""
        different = {(one.oracle, one.outputs): one for one in reversed(findings)}
        for finding in different.values():
            one = Disagreement(index, without_later_calls(case, finding), finding)
            if len(alike := self.seen[one.alike]) < MOST_ALIKE:
                alike.append(one)
        return ()

    def resume(self) -> None:
        """There is nothing to go on with."""

    def save(self) -> Iterator[dict[str, Any]]:
        """Saves what is to be kept; the JSON values of these findings."""
        for one in choose([each for alike in self.seen.values() for each in alike]):
            seen = Provenance(
                BACKEND, self.versions, seed=self.options.seed, first_case=one.index, cut_off="confirmation"
            )
            # A folder for each oracle: two may see one symptom in one case.
            path = corpus.save_entry(self.folder / one.finding.oracle, Entry(one.case, one.finding, provenance=seen))
            yield kept_json(one, path)


def kept_json(one: Disagreement, path: Path) -> dict[str, Any]:
    """The JSON value of a finding that is kept, with the names that `fuzz run --json` has, and its first `options`."""
    finding = one.finding
    return {
        "oracle": finding.oracle,
        "output": finding.output,
        "symptom": finding.symptom,
        "severity": None,
        "message": finding.message,
        "seen": "new",
        "verdict": "pending",
        "path": str(path),
        "elements": one.case.elements(),
        "first_case": one.index,
        "cut_off": "confirmation",
        "options": {name: str(value) for name, value in one.case.calls[0].options.items()},
    }


class Searcher(Fuzzer):
    """A fuzzer that notes what disagrees."""

    keeper: Keeper

    def make_handler(self, triage: Triage, known: list[Bug], deadline: Deadline) -> FindingHandler:
        handler = super().make_handler(triage, known, deadline)
        same = {each.name: getattr(handler, each.name) for each in fields(handler) if each.init}
        self.keeper = Keeper(**same)
        return self.keeper


def search(target: str, folder: Path, seconds: float, cases: int) -> dict[str, object]:
    """The JSON value of a run."""
    options = RunOptions(target, backend=BACKEND, seconds=seconds or None, cases=cases or None, corpus=folder)
    loaded = load_checked_target(target, None, BACKEND)
    searcher = Searcher(
        options, loaded, BACKEND, folder, Watcher(), environment.versions(),
        with_cross_checks=False, allow_all_rejected=True,
    )  # fmt: skip
    result = searcher.run()
    return {**run_json(result, profile=True), "findings": list(searcher.keeper.save())}


def main(target: str, folder: str, seconds: str, cases: str) -> None:
    """Prints what a search gave, or why it gave nothing."""
    try:
        ran = search(target, Path(folder), float(seconds), int(cases))
    except FuzzError as error:
        ran = {"error": one_line(error), "findings": []}
    print(json.dumps(ran))


if __name__ == "__main__":
    main(*sys.argv[1:])
