"""Helpers run cases in parallel: triage ends where it does one by one, after as many executions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest
from bugs import make_bug, wrong_value

from fuzz.errors import TargetError
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import ORACLE_NAMES, SAMPLED_ORACLES
from fuzz.model.outcome import Died
from fuzz.model.rate import Rate
from fuzz.search.engines import RandomEngine
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.conditions import describe_conditions
from fuzz.triage.examiner import HANG_SECONDS
from fuzz.triage.triage import Triage
from fuzz.triage.tries import Tries
from fuzz.triage.triggers import find_triggers
from fuzz.worker.pool import WorkerTeam
from fuzz.worker.protocol import HANDLER, Examine, ReplicaGroup, Report, WorkerConfig
from fuzz.worker.worker import Worker, WorkerCrash

TARGET, PLANTED = "gelu_bw", "erf_saturates"


def report(*findings: Finding, **changes: Any) -> Report:
    return replace(Report("returned", False, findings, ORACLE_NAMES), **changes)


@dataclass
class Answering:
    """A worker, and a team, that answer requests about cases with what they show."""

    shows: dict[tuple[object, ...], Any] = field(default_factory=dict)
    otherwise: Any = field(default_factory=report)
    timeout: float = 1.0
    requests: list[Any] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    size: int = 3

    def answer(self, request: Any) -> Any:
        self.requests.append(request)
        if isinstance(request, ReplicaGroup):
            return tuple(self.shows.get(one.case.key, self.otherwise) for one in request.requests())
        return self.shows.get(request.case.key, self.otherwise)

    def call(self, request: Any, timeout: float | None = None) -> Any:
        """The answer to one request; to several ones, with a timeout, as an iterator."""
        if timeout is None:
            return self.answer(request)
        self.timeouts.append(timeout)
        return (self.answer(one) for one in request)


def triage_with(worker: Any, helpers: Any, target: Target, **more: Any) -> Triage:
    return Triage(target, worker, (), helpers=helpers, **more)


@pytest.fixture
def cases(two_cases: tuple[Case, Case]) -> list[Case]:
    """Cases of other sizes."""
    last = two_cases[0].last
    return [replace(two_cases[0], calls=(replace(last, dims={"M": 2, "N": size}),)) for size in range(3, 8)]


def test_helpers_examine_in_the_order_of_the_cases(cases: list[Case], layernorm: Target) -> None:
    worker, helpers = Answering(), Answering({cases[3].key: report(wrong_value("dx"))})
    reports = list(triage_with(worker, helpers, layernorm).examine_in_parallel(cases, "accuracy"))
    assert [bool(one.findings) for one in reports] == [False, False, False, True, False]
    assert helpers.requests == [Examine(case) for case in cases] and worker.requests == []
    assert helpers.timeouts == [worker.timeout]


def test_without_helpers_the_worker_examines_them_one_by_one(cases: list[Case], layernorm: Target) -> None:
    worker = Answering()
    reports = triage_with(worker, WorkerTeam(), layernorm).examine_in_parallel(cases, "accuracy")
    next(reports)
    assert worker.requests == [Examine(cases[0])]


def test_what_a_helper_could_not_run_the_worker_runs(cases: list[Case], layernorm: Target) -> None:
    like = wrong_value("dx")
    worker = Answering({cases[1].key: report(like)})
    helpers = Answering({cases[1].key: report(outcome="not run: no room", not_run=True)})
    reports = list(triage_with(worker, helpers, layernorm).examine_in_parallel(cases, "accuracy"))
    assert [bool(one.findings) for one in reports] == [False, True, False, False, False]


def test_a_case_in_which_a_helper_ends_shows_that(cases: list[Case], layernorm: Target) -> None:
    helpers = Answering({cases[2].key: WorkerCrash(Died("SIGSEGV"))})
    died = Finding("fault", ("launcher",), "died", "the worker process died of SIGSEGV")
    assert triage_with(Answering(), helpers, layernorm).reproduce_first(cases, died)[0] == 3


def test_the_first_of_several_structures_is_taken(cases: list[Case], layernorm: Target) -> None:
    like = wrong_value("dx")
    helpers = Answering({cases[2].key: report(like), cases[4].key: report(like)})
    triage = triage_with(Answering(), helpers, layernorm)
    assert triage.reproduce_first(cases, like) == (3, like)
    assert len(helpers.requests) == 3, "those after it are not waited for"
    assert triage.reproduce_first(cases[:2], like) == (2, None)


@pytest.mark.parametrize(
    ("finding", "rate", "is_parallel"),
    [
        (wrong_value("dx"), Rate(10, 10), True),
        (Finding("bounds", ("x",), "stray-read", "m"), Rate(10, 10), True),
        (wrong_value("dx"), Rate(5, 10), False),
    ],
)
def test_candidates_are_tried_in_parallel_where_each_one_tells(
    two_cases: tuple[Case, Case], layernorm: Target, finding: Finding, rate: Rate, is_parallel: bool
) -> None:
    helpers = Answering()
    bug = make_bug(two_cases[0], finding=finding, rate=rate)
    triage_with(Answering(), helpers, layernorm).run_shrinker(bug, Budget())
    assert bool(helpers.requests) == is_parallel


def test_candidates_that_are_another_bugs_are_not_tried(
    two_cases: tuple[Case, Case], layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beside them are, and all of them count as tried."""
    bug = make_bug(replace(two_cases[1], split=None), "dx", rate=Rate(10, 10))
    alone = triage_with(Answering(), WorkerTeam(), layernorm).run_shrinker(bug, Budget())
    others = (bug.case.last.dims["N"] + 1) % 4
    monkeypatch.setattr("fuzz.triage.triage.all_hold", lambda triggers, case: case.last.dims["N"] % 4 == others)
    bug.others = ((),)
    worker, helpers = Answering(), Answering()
    shrinker = triage_with(worker, helpers, layernorm).run_shrinker(bug, Budget())
    ran = [request.case.last.dims["N"] for request in helpers.requests]
    assert len(ran) > 3 and all(size % 4 != others for size in ran)
    assert shrinker.seen == alone.seen and shrinker.budget.used == alone.budget.used


@dataclass
class Recording(Tries):
    """Tries that keep what was asked, and what was tried ahead."""

    asked: list[Case] = field(default_factory=list)
    early: list[Case] = field(default_factory=list)

    def agrees(self, case: Case) -> bool:
        self.asked.append(case)
        return super().agrees(case)

    def prefetch(self, cases: Iterable[Case]) -> None:
        listed = list(cases)
        self.early += listed
        super().prefetch(listed)


def test_all_that_is_asked_about_a_least_case_is_tried_ahead(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """By helpers, each once."""
    least = replace(two_cases[1], calls=(replace(two_cases[1].last, dims={"M": 2, "N": 5}),), split=None)
    helpers, worker = Answering(), Answering()
    bug = make_bug(least, "dx", rate=Rate(10, 10))
    tries = Recording(bug, triage_with(worker, helpers, layernorm))
    found = find_triggers(least, least, layernorm, tries.agrees, tries.shows, costly=False, prefetch=tries.prefetch)
    assert found and tries.asked
    assert {case.key for case in tries.asked} <= {case.key for case in tries.early}
    assert worker.requests == []
    assert len({request.case.key for request in helpers.requests}) == len(helpers.requests)


def test_what_is_asked_about_other_cases_is_tried_ahead_too(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """The unshrunk case without what the least one needs, and the least one with other choices."""
    unshrunk = replace(two_cases[1], split=None)
    least = replace(unshrunk, calls=(replace(unshrunk.last, dims={"M": 2, "N": 5}),))
    worker, helpers = Answering(), Answering()
    tries = Recording(make_bug(least, "dx", rate=Rate(10, 10)), triage_with(worker, helpers, layernorm))
    find_triggers(least, unshrunk, layernorm, tries.agrees, tries.shows, tries.prefetch, costly=True)
    assert {case.key for case in tries.asked} <= {case.key for case in tries.early}
    tries.asked.clear()
    describe_conditions(least, layernorm, tries.agrees, prefetch=tries.prefetch)
    assert tries.asked and {case.key for case in tries.asked} <= {case.key for case in tries.early}
    assert worker.requests == []


def test_a_bug_that_hangs_is_waited_for_no_longer_by_helpers(cases: list[Case], layernorm: Target) -> None:
    helpers, hung = Answering(), Finding("fault", ("launcher",), "hung", "m")
    triage = triage_with(Answering(timeout=30.0), helpers, layernorm)
    Tries(make_bug(cases[0], finding=hung, rate=Rate(1, 1)), triage).prefetch(cases)
    assert helpers.timeouts == [HANG_SECONDS]


def test_what_nobody_asks_about_does_not_count(
    cases: list[Case], layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference that ends the process in such a case is met where it is asked about, and not before."""
    triage = triage_with(Answering(), Answering({cases[1].key: WorkerCrash(Died("SIGSEGV"))}), layernorm)
    tries = Tries(make_bug(cases[0], "dx", rate=Rate(10, 10)), triage)
    monkeypatch.setattr("fuzz.triage.examiner.report_of_crash", Mock(side_effect=TargetError("it ends the process")))
    tries.prefetch(cases)
    assert tries.agrees(cases[0]) and tries.agrees(cases[2])
    with pytest.raises(TargetError):
        tries.agrees(cases[1])


def test_nothing_is_tried_ahead_of_a_bug_of_which_one_run_does_not_tell(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    def untouched() -> Iterator[Case]:
        raise AssertionError
        yield

    several = replace(two_cases[0], calls=two_cases[0].calls * 2, split=None)
    helpers = Answering()
    for bug, team in (
        (make_bug(two_cases[0], "dx", rate=Rate(5, 10)), helpers),
        (make_bug(several, "dx", rate=Rate(10, 10)), helpers),
        (make_bug(two_cases[0], "dx", rate=Rate(10, 10), stateful=True), helpers),
        (make_bug(two_cases[0], "dx", rate=Rate(10, 10)), WorkerTeam()),
    ):
        Tries(bug, triage_with(Answering(), team, layernorm)).prefetch(untouched())
    assert helpers.requests == []


def test_what_was_tried_is_not_tried_again(cases: list[Case], layernorm: Target) -> None:
    like = wrong_value("dx")
    worker, helpers = Answering({cases[4].key: report(like)}), Answering({cases[1].key: report(like)})
    tries = Tries(make_bug(cases[0], finding=like, rate=Rate(10, 10)), triage_with(worker, helpers, layernorm))
    tries.prefetch(cases[:3])
    assert tries.agrees(cases[0]) and tries.shows(cases[1]) and not tries.agrees(cases[1])
    assert worker.requests == [] and len(helpers.requests) == 3
    assert tries.shows(cases[4]) and tries.shows(cases[4]) and len(worker.requests) == 1


def test_a_contiguous_case_is_not_tried_for_its_layout(cases: list[Case], layernorm: Target) -> None:
    call = cases[0].last
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
    plain, helpers = replace(cases[0], calls=(call,)), Answering()
    layout = Finding("layout", ("dx",), "bits", "m")
    tries = Tries(make_bug(cases[0], finding=layout, rate=Rate(10, 10)), triage_with(Answering(), helpers, layernorm))
    tries.prefetch([plain])
    assert tries.agrees(plain) and helpers.requests == []


def test_options_that_python_calls_equal_are_tried_apart(cases: list[Case], layernorm: Target) -> None:
    both = [replace(cases[0], calls=(replace(cases[0].last, options={"eps": eps}),)) for eps in (1, True)]
    helpers = Answering()
    Tries(make_bug(cases[0], "dx", rate=Rate(10, 10)), triage_with(Answering(), helpers, layernorm)).prefetch(both)
    assert len(helpers.requests) == 2


def processes(count: int) -> Triage:
    """Triage of a planted bug with real processes, so many helpers among them."""
    target = load(TARGET)
    worker = Worker(HANDLER, WorkerConfig(TARGET, PLANTED, "cpu"), 8 << 30, 60.0)
    helpers = WorkerTeam(tuple(worker.clone() for _ in range(count)))
    return Triage(target, worker, SAMPLED_ORACLES, helpers=helpers)


def first_bug(triage: Triage) -> tuple[Case, Finding]:
    engine = RandomEngine(triage.target, 3)
    drawn: Sequence[Case] = [engine.case(index) for index in range(200)]
    for case in drawn:
        if case.elements() < 500 and len(case.calls) == 1:
            shown = triage.examine(case, "accuracy").finding_of("accuracy")
            if shown:
                return case, shown
    raise AssertionError("no case shows it")


def test_a_planted_bug_ends_in_the_same_case_with_and_without_helpers() -> None:
    def finished(count: int) -> Bug:
        with processes(count) as triage:
            bug = triage.confirm(*first_bug(triage), ())
            assert bug is not None
            triage.shrink(bug, Budget())
            triage.explain(bug)
            triage.find_triggers(bug)
            return bug

    alone, parallel = finished(0), finished(2)
    assert alone.case.key == parallel.case.key and alone.executions == parallel.executions
    assert [one.name for one in alone.triggers or ()] == [one.name for one in parallel.triggers or ()]
    assert alone.least.diagnosis == parallel.least.diagnosis
