"""Triage confirms a disagreement and shrinks it to a case that clean workers show again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding, Verdict
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.model.outcome import Died
from fuzz.model.rate import Rate
from fuzz.model.recipes import recipe
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage, describe_consequences
from fuzz.triage.triggers import Trigger
from fuzz.worker import retry_backoff
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import Examine, ReplicaGroup, Report
from fuzz.worker.worker import Worker, WorkerCrash


class OneByOne(Triage):
    """Candidates run alone: what `examine` is replaced by says of each."""

    def reproduce_first(self, cases: Sequence[Case], like: Finding) -> tuple[int, Finding | None]:
        return 1, self.reproduce(cases[0], like)


@pytest.mark.parametrize(
    ("signal", "shown", "is_found"), [("SIGKILL", 1, False), ("SIGKILL", 10, True), ("SIGSEGV", 1, True)]
)
def test_a_worker_that_somebody_kills_is_no_finding(
    two_cases: tuple[Case, Case],
    layernorm: Target,
    monkeypatch: pytest.MonkeyPatch,
    signal: str,
    shown: int,
    is_found: bool,
) -> None:
    triage = Triage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    monkeypatch.setattr(triage, "measure_rate", lambda case, finding: Rate(shown, 10))
    died = Finding("fault", ("launcher",), "died", f"the worker process died of {signal}")
    assert (triage.confirm(two_cases[0], died, ()) is not None) == is_found


class Answering:
    """A worker that gives the answers that are listed, one after the other."""

    timeout = 1.0

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = iter(answers), list[Any]()

    def call(self, request: Any) -> Any:
        self.requests.append(request)
        return next(self.answers)


def report(*findings: Finding, **changes: Any) -> Report:
    return replace(Report("returned", False, findings, ORACLE_NAMES), **changes)


def test_the_first_of_cases_that_run_together_is_taken_which_shows_the_finding(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    like, other = wrong_value("dx"), wrong_value("dweight")
    cases = [two_cases[0].replica(number) for number in range(5)]
    worker: Any = Answering((report(), report(other), report(like), report(), report(like)))
    assert Triage(layernorm, worker, ()).reproduce_first(cases, like) == (3, like)
    (request,) = worker.requests
    assert [one.case for one in request.requests()] == cases and request.sought == like


def test_cases_that_could_not_run_together_are_not_counted_as_tried(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """Those after one that could not run, and all but the first where the process ended."""
    like, other = wrong_value("dx"), wrong_value("dweight")
    cases = [two_cases[0].replica(number) for number in range(3)]
    crash = WorkerCrash(Died("SIGSEGV"))
    not_run = report(outcome="not run: no room", not_run=True)
    for answer, tried in (
        ((report(other), report(), report(other)), 3),
        ((report(), not_run, not_run), 1),
        ((report(),), 1),
        ((report(),) * 3, 3),
    ):
        worker: Any = Answering(answer)
        assert Triage(layernorm, worker, ()).reproduce_first(cases, like) == (tried, None)
    alone = report(like)
    for first in (crash, (not_run, not_run, not_run), ()):
        worker = Answering(first, alone)
        assert Triage(layernorm, worker, ()).reproduce_first(cases, like) == (1, like)
        assert worker.requests[1] == Examine(cases[0])


def test_candidates_run_alone_while_a_case_has_several_calls(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """For a call that is to take the place of several a clean worker is asked."""
    case = two_cases[1]
    calls = [replace(case.last, arguments=with_seed(case.last, seed)) for seed in (1, 2, 3)]
    bug = make_bug(replace(case, calls=tuple(calls), split=None), "dx", rate=Rate(10, 10))
    cleans: list[bool] = []

    class Agreeing(Triage):
        def reproduce_first(self, cases: Sequence[Case], like: Finding) -> tuple[int, Finding | None]:
            raise AssertionError

        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            cleans.append(clean)
            return None

    worker: Any = Worker("nowhere", None, 1 << 30, 1.0)
    Agreeing(layernorm, worker, ()).run_shrinker(bug, Budget(60))
    assert len(cleans) > 3 and all(cleans)


def with_seed(call: Call, seed: int) -> dict[str, Argument]:
    values = {name: replace(value, values=recipe("normal", seed)) for name, value in call.arguments.items()}
    return values


@pytest.mark.parametrize("together", [True, False])
def test_candidates_run_together_where_the_worker_runs_them_together(
    two_cases: tuple[Case, Case], layernorm: Target, together: bool
) -> None:
    """Those of a bug of values that shows each time."""
    like = wrong_value("dx")

    class Agreeing(Answering):
        def call(self, request: Any) -> Any:
            self.requests.append(request)
            return (report(),) * len(request.sampled) if isinstance(request, ReplicaGroup) else report()

    for finding, is_asked in ((like, together), (replace(like, symptom="reference"), False)):
        worker: Any = Agreeing()
        bug = make_bug(two_cases[0], finding=finding, rate=Rate(10, 10))
        Triage(layernorm, worker, (), together=together).run_shrinker(bug, Budget())
        assert any(isinstance(one, ReplicaGroup) for one in worker.requests) == is_asked


@pytest.mark.parametrize("stays", [True, False])
def test_oracle_outputs_and_class_of_symptom_stay_while_a_case_shrinks(
    two_cases: tuple[Case, Case], layernorm: Target, stays: bool
) -> None:
    call = replace(two_cases[1].last, dims={"M": 4, "N": 4})
    bug = make_bug(replace(two_cases[1], calls=(call,)), "dx")
    others = [{"symptom": "nonfinite"}, {"outputs": ("dweight",)}, {"oracle": "layout", "symptom": "bits"}]

    class Shown(OneByOne):
        """Cases of one row show something else."""

        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            changes: Any = {"symptom": "sign"} if stays else others[case.last.dims["N"] % 3]
            found = replace(bug.sought, **(changes if case.last.dims["M"] < 2 else {}))
            return Report("returned", False, (found,), ORACLE_NAMES)

    worker: Any = SimpleNamespace(timeout=30.0)
    least = Shown(layernorm, worker, ()).run_shrinker(bug, Budget(), clean=False).case
    assert least.last.dims["M"] == (1 if stays else 2)


@pytest.mark.parametrize(
    ("symptom", "rate", "rows"),
    [("nonfinite", Rate(10, 10), 3), ("nonfinite", Rate(5, 10), 1), ("value", Rate(10, 10), 1)],
)
def test_the_output_of_a_headline_of_nan_stays_while_a_case_shrinks(
    two_cases: tuple[Case, Case], layernorm: Target, symptom: str, rate: Rate, rows: int
) -> None:
    """Any output may stay of wrong numbers, and of a bug that does not show each time."""
    call = replace(two_cases[1].last, dims={"M": 4, "N": 4})
    nan = Finding("accuracy", ("dweight", "dx"), symptom, "m")
    bug = make_bug(replace(two_cases[1], calls=(call,)), finding=nan, rate=rate)

    class Shown(OneByOne):
        """Cases of less than three rows show the other output alone."""

        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            found = replace(bug.sought, outputs=("dweight", "dx") if case.last.dims["M"] > 2 else ("dx",))
            return Report("returned", False, (found,), ORACLE_NAMES)

    worker: Any = SimpleNamespace(timeout=30.0)
    assert Shown(layernorm, worker, ()).run_shrinker(bug, Budget()).case.last.dims["M"] == rows


def test_a_case_does_not_shrink_to_where_a_known_bug_shows(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    def fewer(case: Case) -> Case:
        """Cases of less than three rows have the known bug."""
        return case if case.last.dims["M"] > 2 else case.with_call(0, replace(case.last, dims={"M": 3, "N": 1}))

    call = replace(two_cases[1].last, dims={"M": 4, "N": 4})
    bug = make_bug(replace(two_cases[1], calls=(call,)), "dx", others=((Trigger("M", fewer),),))

    class Shown(OneByOne):
        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            return Report("returned", False, (bug.sought,), ORACLE_NAMES)

    worker: Any = SimpleNamespace(timeout=30.0)
    assert Shown(layernorm, worker, ()).run_shrinker(bug, Budget()).case.last.dims["M"] == 3


def test_gradients_that_a_write_spoils_are_no_consequence_of_wrong_numbers(two_cases: tuple[Case, Case]) -> None:
    spoilt = Finding("autograd", ("before_x",), "before", "spoilt")
    numbers = make_bug(two_cases[1], "dx", also=(spoilt,)).least
    written = replace(numbers, finding=Finding("mutation", ("x",), "written", "w"))
    assert (describe_consequences(numbers), describe_consequences(written)) == ((), ("spoilt",))


def test_clean_workers_are_asked_only_while_a_case_has_several_calls(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    case = replace(two_cases[1], calls=(two_cases[1].last,) * 3, split=None)
    bug = make_bug(case, "dx")
    asked: list[tuple[int, bool]] = []

    class Shown(OneByOne):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            asked.append((len(case.calls), clean))
            return like

    worker: Any = SimpleNamespace(timeout=30.0)
    Shown(layernorm, worker, ()).run_shrinker(bug, Budget())
    singles = [clean for calls, clean in asked if calls == 1]
    assert all(clean for calls, clean in asked if calls > 1)
    assert singles[0] and not any(singles[1:]) and len(singles) > 1


def test_a_call_that_shows_it_only_after_others_does_not_take_their_place(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    bug = make_bug(replace(two_cases[1], calls=(two_cases[1].last,) * 2, split=None), "dx")

    class Shown(OneByOne):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            return like if len(case.calls) > 1 or not clean else None

    worker: Any = SimpleNamespace(timeout=30.0)
    assert len(Shown(layernorm, worker, ()).run_shrinker(bug, Budget()).case.calls) == 2


class StepwiseTriage(Triage):
    """Triage whose shrinker finds nothing smaller, and whose time ends in the step of that name."""

    ends_in = ""

    def run_shrinker(self, bug: Bug, budget: Budget, clean: bool = False) -> Any:
        self.end_in("shrinking")
        return SimpleNamespace(case=bug.case, finding=bug.finding)

    def collect_findings(self, bug: Bug) -> None:
        self.end_in("examination")

    def adjudicate(self, bug: Bug) -> None:
        self.end_in("adjudication")
        bug.least = replace(bug.least, verdict=Verdict("kernel"))

    def diagnose(self, bug: Bug) -> None:
        self.end_in("diagnosis")

    def end_in(self, step: str) -> None:
        if step == self.ends_in:
            raise OutOfTime


@pytest.mark.parametrize(
    ("step", "verdict"),
    [("shrinking", "pending"), ("examination", "pending"), ("adjudication", "pending"), ("diagnosis", "kernel")],
)
def test_a_bug_says_in_which_step_its_time_ended(
    two_cases: tuple[Case, Case], layernorm: Target, step: str, verdict: str
) -> None:
    triage = StepwiseTriage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    triage.ends_in = step
    bug = make_bug(two_cases[0], "dx", rate=Rate(10, 10))
    with pytest.raises(OutOfTime):
        triage.shrink(bug, Budget())
        triage.explain(bug)
    assert (bug.cut_off, bug.least.verdict.name) == (step, verdict)


@pytest.mark.parametrize(("executions", "cut_off"), [(20_000, ""), (0, "shrinking")])
def test_shrinking_that_its_budget_ends_is_cut_off_and_explained_all_the_same(
    two_cases: tuple[Case, Case], layernorm: Target, executions: int, cut_off: str
) -> None:
    bug = make_bug(two_cases[0], "dx", rate=Rate(10, 10), cut_off="diagnosis")
    triage = StepwiseTriage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    triage.shrink(bug, Budget(executions, seconds=3600.0))
    triage.explain(bug)
    assert (bug.cut_off, bug.least.verdict.name) == (cut_off, "kernel")


def test_how_often_a_bug_shows_is_measured_with_earlier_calls_and_again_without_them(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """What shows by chance, and did not for ten times, looks as if it needed earlier calls."""
    found = make_bug(two_cases[0], "dx").finding
    agreeing, disagreeing = (Report("returned", False, one, ORACLE_NAMES) for one in ((), (found,)))
    runs = iter([*[agreeing] * 10, disagreeing, *[agreeing, disagreeing] * 5, *[agreeing, agreeing, disagreeing] * 4])

    class Flaky(Triage):
        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            return next(runs)

        def run_shrinker(self, bug: Bug, budget: Budget, clean: bool = False) -> Any:
            return SimpleNamespace(case=replace(bug.case, calls=(bug.case.last,)), finding=bug.finding)

        def _is_reproducible(self, shrunk: Any, bug: Bug) -> bool:
            return True

    triage = Flaky(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    bug = triage.confirm(two_cases[0], found, two_cases[1:])
    assert bug is not None and bug.stateful and len(bug.case.calls) == 2 and bug.rate == Rate(5, 10)
    bug.rate = Rate(10, 10)
    triage.shrink(bug, Budget())
    assert not bug.stateful and len(bug.case.calls) == 1 and bug.rate == Rate(3, 10)


def test_what_does_not_show_again_has_shown_once() -> None:
    assert (Rate(0, 10).at_least_once, Rate(3, 10).at_least_once) == (Rate(1, 11), Rate(3, 10))


@pytest.mark.parametrize(
    ("unshrunk", "is_kept"), [("kernel", True), ("unadjudicated", True), ("undecided", False), ("agrees", False)]
)
def test_an_undecided_least_case_gives_way_to_the_unshrunk_one_where_that_is_beyond_doubt(
    two_cases: tuple[Case, Case], layernorm: Target, monkeypatch: pytest.MonkeyPatch, unshrunk: str, is_kept: bool
) -> None:
    least, large = two_cases
    bug = make_bug(large, "dx", rate=Rate(10, 10))
    bug.least = replace(bug.least, case=least)
    far = Verdict("unadjudicated") if unshrunk == "agrees" else Verdict(unshrunk, finding=bug.finding)
    triage = Triage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    verdicts = {least.key: Verdict("undecided", finding=bug.finding), large.key: far}
    monkeypatch.setattr(triage, "request_verdict", lambda bug, case: verdicts[case.key])
    triage.adjudicate(bug)
    assert (bug.case.key, bug.least.verdict) == ((large.key, far) if is_kept else (least.key, verdicts[least.key]))


def test_without_strides_there_is_nothing_that_a_layout_could_change(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """So that a finding of the oracle layout has the layout as its trigger."""
    worker: Any = type("NoWorker", (), {"timeout": 1.0})()
    plain = two_cases[0]
    for name, value in plain.last.tensors.items():
        plain = plain.with_call(0, plain.last.with_argument(name, replace(value, layout=CONTIGUOUS)))
    drift = Finding("layout", ("dx",), "drift", "m")
    assert Triage(layernorm, worker, ()).shown_subjects(plain, drift, Rate(10, 10)) == frozenset()


def test_a_case_for_which_memory_lacks_runs_again(
    two_cases: tuple[Case, Case], layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what others do to the machine is neither an agreement nor lowers the rate of a bug."""
    found = make_bug(two_cases[0], "dx").finding
    lacking = Report("not run: no memory is left here", False, (), (), not_run=True)
    reports = [lacking, lacking, *[Report("returned", False, (found,), ORACLE_NAMES)] * 10]

    class ShortWorker:
        timeout, deadline = 1.0, Deadline()

        def call(self, request: object) -> Report:
            return reports.pop(0)

        def stop(self) -> None: ...

        def clone(self) -> ShortWorker:
            return self

        start = stop

    monkeypatch.setattr(retry_backoff, "PAUSES", (0.0,) * 3)
    worker: Any = ShortWorker()
    assert Triage(layernorm, worker, ()).measure_rate(two_cases[0], found) == Rate(10, 10) and not reports
