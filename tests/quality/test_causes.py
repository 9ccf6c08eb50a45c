"""One cause is one finding however often it is hit, and no cause hides another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from runs import run

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import SAMPLED_ORACLES, sample_oracles
from fuzz.oracles.examine import make_handler
from fuzz.run.findings.finding_handler import FindingHandler
from fuzz.run.findings.triage_priority import TriagePriority
from fuzz.run.findings.triage_queue import Suspect
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes import values
from fuzz.target.loader import load
from fuzz.triage.bug import Bug, group_for_report
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import Examine, WorkerConfig

TARGETS = Path(__file__).with_name("causes_targets.py")
CASES = 120
Found = Callable[[str], tuple[list[Bug], Path]]


class InProcessWorker:
    """Answers in this process, which a launcher that only computes leaves as it was."""

    timeout = 30.0

    def __init__(self, config: WorkerConfig) -> None:
        self.handle = make_handler(config)

    def call(self, request: Any) -> Any:
        return self.handle(request)

    def clone(self) -> InProcessWorker:
        return self

    def start(self) -> None:
        """It has."""

    def stop(self) -> None:
        """Nothing runs."""


def make_run(name: str, seed: int, folder: Path) -> tuple[FindingHandler, list[Suspect]]:
    """A handler of findings of one of the targets, and what CASES random cases show."""
    text = f"{TARGETS}:{name}"
    target, config = load(text), WorkerConfig(text, None, "cpu")
    worker: Any = InProcessWorker(config)
    triage = Triage(target, worker, SAMPLED_ORACLES)
    options = RunOptions(text, backend="cpu", cases=CASES, seed=seed)
    # How many bugs there are depends on no grade.
    handler = FindingHandler(
        options, target, config, folder, {}, triage, Watcher(), 0.0, with_cross_checks=False, with_grades=False
    )
    return handler, [Suspect(index, case, findings, []) for index, case, findings in disagreements(text, seed)]


@cache
def disagreements(target: str, seed: int) -> list[tuple[int, Case, list[Finding]]]:
    """Which of CASES random cases disagree, and how."""
    engine, worker = RandomEngine(load(target), seed), InProcessWorker(WorkerConfig(target, None, "cpu"))
    cases = [engine.case(index) for index in range(CASES)]
    reports = [worker.call(Examine(case, sample_oracles(index, 1))) for index, case in enumerate(cases)]
    return [
        (index, case, one.findings)
        for index, (case, one) in enumerate(zip(cases, reports, strict=True))
        if one.findings
    ]


def find_bugs(name: str, folder: Path) -> list[Bug]:
    """The bugs that CASES random cases of one of the targets show."""
    handler, suspects = make_run(name, 0, folder)
    handle(handler, *suspects)
    return handler.hit_bugs


@pytest.fixture(autouse=True)
def few_assignments() -> Iterator[None]:
    """The smallest values are sought among fewer, as in the other runs of these tests: no value is looked at."""
    with patch.object(values, "MAX_ASSIGNMENTS", 100):
        yield


def handle(handler: FindingHandler, *suspects: Suspect) -> None:
    """Handles suspects, each until nothing of it is left."""
    for one in suspects:
        findings = one.findings
        while findings:
            findings = handler.handle(one.index, one.case, findings, one.history)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """found(target): the bugs of one run of seed 0 for each target, and the folder where they are saved."""
    folder = tmp_path_factory.mktemp("causes")
    return cache(lambda name: (find_bugs(name, folder / name), folder / name))


def classes(bugs: list[Bug]) -> list[tuple[str, str]]:
    """The oracle and class of symptom of each bug."""
    return sorted((bug.finding.oracle, bug.finding.symptom_class) for bug in bugs)


VALUE, NAN = ("accuracy", "value"), ("accuracy", "nonfinite")
SEVERAL = {
    "nan_and_number": [NAN, VALUE],
    "nan_and_number_by_chance": [NAN, VALUE],
    "always_and_large": [VALUE, VALUE],
    "always_and_tail": [VALUE, VALUE],
    "always_and_flag": [VALUE, VALUE],
    "always_and_nan": [NAN, VALUE],
    "always_and_nan_in_half_precision": [NAN, VALUE],
    "always_and_early_overflow": [NAN, VALUE],
    "writes_and_returns_an_input": [("mutation", "written")] * 2,
    "always_and_raises": [VALUE, ("fault", "raised RuntimeError")],
    "raises_and_wrong_by_size": [VALUE, ("fault", "raised RuntimeError")],
    "always_and_option": [VALUE, VALUE],
    "output_of_an_option": [VALUE, VALUE],
    "three": [NAN, VALUE, VALUE],
    "two_raises": [("fault", "raised RuntimeError")] * 2,
}
"""Targets with several mistakes, and what is to be found."""


@pytest.mark.parametrize("name", SEVERAL)
def test_one_cause_hides_no_other(name: str, found: Found) -> None:
    bugs, folder = found(name)
    assert classes(bugs) == SEVERAL[name]
    assert len(list(folder.rglob("*.yaml"))) == len(SEVERAL[name])


SINGLE = (
    "factor",
    "missing_term",
    "grows",
    "overflow",
    "tail",
    "columns",
    "strides",
    "rounds",
    "with_option",
    "negative",
    "raises",
    "odd_sizes",
    "overflows_in_half_precision",
    "last_column",
    "sentinel",
    "rounds_where_strided",
    "forgotten_factor",
    "adds_into_an_input",
    "row_of_a_part",
)


HEADLINES = {
    "nan_and_number": 2,
    "nan_and_number_by_chance": 2,
    "always_and_large": 2,
    "always_and_tail": 2,
    "always_and_flag": 2,
    "always_and_nan": 1,
    "always_and_option": 2,
    "three": 3,
}
"""How many of them stand alone: NaN of an output that is wrong in every case is possibly the same cause."""


@pytest.mark.parametrize("name", HEADLINES)
def test_what_has_another_cause_by_evidence_stands_alone(name: str, found: Found) -> None:
    assert len(group_for_report(found(name)[0])) == HEADLINES[name]


@pytest.mark.parametrize("name", SINGLE)
def test_one_cause_is_one_finding(name: str, found: Found) -> None:
    """Whichever outputs, dtypes, layouts, sizes and symptoms show it."""
    (bug,) = found(name)[0]
    assert bug.hits > 3


def test_a_segfault_a_hang_full_memory_and_a_raise_are_four_findings(tmp_path: Path) -> None:
    _, value = run(f"{TARGETS}:four_faults", tmp_path, "--engine", "random", "--cases", "60")
    assert sorted(found["symptom"] for found in value["findings"]) == ["died", "hung", "out-of-memory", "raised"]


def test_a_rare_bug_behind_a_flood_of_another_is_filed_with_the_second_case(tmp_path: Path) -> None:
    handler, waiting = make_run("flood_and_rare", 2, tmp_path)
    order = TriagePriority(handler.target)
    rare = [one for one in waiting if any("z" in finding.outputs for finding in one.findings)]
    assert len(waiting) > 100 and len(rare) == 1 and waiting.index(rare[0]) > 10
    for _ in range(2):
        one = order.choose(waiting, True)
        assert one is not None
        waiting.remove(one)
        handle(handler, one)
    assert order.choose(waiting, True) is None
    assert sorted(bug.sought.outputs for bug in handler.hit_bugs) == [("y",), ("z",)]


@pytest.mark.parametrize("name", ["always_and_large", "always_and_option"])
def test_one_case_that_shows_two_causes_gives_both(name: str, tmp_path: Path) -> None:
    """The second one may never show again."""
    handler, suspects = make_run(name, 0, tmp_path)
    handle(handler, next(one for one in suspects if one.findings[0].outputs == ("y", "z")))
    assert sorted((bug.sought.outputs, bug.hits) for bug in handler.hit_bugs) == [(("y",), 1), (("z",), 1)]


def test_a_finding_is_of_a_class_for_each_output() -> None:
    kinds = (("y", "nonfinite"), ("y", "value"), ("z", "sign"))
    finding = Finding("accuracy", ("y", "z"), "nonfinite", "m", kinds=kinds)
    numbers = finding.restricted_to(finding.subjects - {("accuracy", "nonfinite", "y")})
    assert numbers is not None and (numbers.outputs, numbers.symptom) == (("y", "z"), "sign")
    assert finding.of_filed_class.outputs == ("y",) and numbers.restricted_to(()) is None
