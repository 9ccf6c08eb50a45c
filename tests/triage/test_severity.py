"""Severity by the inputs that show a finding, by what it breaks, and beside eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from bugs import make_bug

from fuzz import size, target, tensor, ulps
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype, from_bits
from fuzz.model.finding import Element, Finding, Verdict
from fuzz.model.grade import FOR_NOW, Grade
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import recipe
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.eager import compare_eager
from fuzz.oracles.execution.examination import Examination
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage import severity
from fuzz.triage.bug import Bug
from fuzz.triage.severity import GRADING, GROUP_ELEMENTS, decide_severity, grade_bug, is_limit
from fuzz.worker.deadline import OutOfTime
from fuzz.worker.pool import WorkerTeam
from fuzz.worker.protocol import MOST_DISAGREEING, CompareEager, EagerDeviation, Examine, ReplicaGroup, Report

M, N = size("M", 1, 4096), size("N", 1, 8192)
Shows = Callable[[Case], Finding | None]


def product(x: torch.Tensor, w: torch.Tensor) -> Mapping[str, torch.Tensor]:
    return dict(y=x * w)


def made(launcher: Any = product, **more: Any) -> Target:
    found: Target = target(x=tensor(M, N), w=tensor(M, N), **{"reference": product, **more})(launcher)
    return found


def case_of(name: str = "ones", **params: int) -> Case:
    values = {key: Argument(("M", "N"), "float32", recipe(name, 1, **params)) for key in ("x", "w")}
    return Case("product", (Call({"M": 1, "N": 2}, values, {}),))


def largest(case: Case) -> float:
    call = case.last
    found = [from_bits(value.bits(call.dims), dtype(value.dtype)) for value in call.tensors.values()]
    return float(max(np.abs(one.astype(np.float64)).max(initial=0) for one in found))


@dataclass
class FakeTriage:
    """Triage whose kernel is a predicate on cases."""

    target: Target
    shows: Shows
    eager: EagerDeviation | None = None
    verdict: Verdict = Verdict("kernel")
    sampled: tuple[str, ...] = ()
    timeout: float = 30.0
    draws: list[Case] = field(default_factory=list)
    helpers: WorkerTeam = field(default_factory=WorkerTeam)

    def sampled_of(self, oracle: str) -> tuple[str, ...]:
        return self.sampled

    def impatient_for(self, finding: Finding) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def worker(self) -> FakeTriage:
        return self

    def call(self, request: Any) -> Any:
        if isinstance(request, ReplicaGroup):
            reports: list[Report] = []
            for one in request.requests():
                enough = sum(bool(report.findings) for report in reports) >= MOST_DISAGREEING
                reports.append(Report("returned", False, (), ()) if enough else self.report(one))
            return tuple(reports)
        return self.eager if isinstance(request, CompareEager) else self.verdict

    def report(self, request: Examine) -> Report:
        self.draws.append(request.case)
        finding = self.shows(request.case)
        return Report("returned", False, (finding,) if finding else (), ("accuracy",))

    def reproduce(self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False) -> Finding | None:
        return self.shows(case)


def graded(
    shows: Shows, case: Case | None = None, kernel: Target | None = None, **triage: Any
) -> tuple[Bug, FakeTriage]:
    """The graded bug of a certified finding, and what was drawn."""
    case, fake = case or case_of(), FakeTriage(kernel or made(), shows, **triage)
    bug = make_bug(case, "y", finding=shows(case) or wrong())
    bug.least = replace(bug.least, verdict=Verdict("kernel"))
    grade_bug(bug, fake, Budget())  # type: ignore[arg-type]
    return bug, fake


def wrong(symptom: str = "value", oracle: str = "accuracy", ratio: float = 100.0) -> Finding:
    return Finding(oracle, ("y",), symptom, "wrong", ratio=ratio)


def where(condition: Callable[[Case], bool], **finding: Any) -> Shows:
    return lambda case: wrong(**finding) if condition(case) else None


def test_what_randn_shows_is_high_with_realistic_sizes_and_its_rate() -> None:
    bug, fake = graded(where(lambda case: largest(case) < 3.4))
    assert bug.grade and bug.grade.typical and (bug.grade.severity, bug.grade.input_class) == ("high", "ordinary")
    typical = bug.grade.typical
    assert typical.case.last.dims["N"] > 1 and 0 < typical.rate.disagreements <= typical.rate.runs == 60
    assert len(fake.draws) <= 200 and bug.cut_off == ""


def test_a_kernel_that_is_always_wrong_is_wrong_in_all_replicas_that_are_counted() -> None:
    bug, _ = graded(where(lambda case: True))
    assert bug.grade and bug.grade.typical and str(bug.grade.typical.rate) == "60/60"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda case: largest(case) > 89, ("high", "ordinary")),
        (lambda case: case.last.dims["N"] > 700, ("high", "ordinary")),
        (lambda case: case.last.arguments["x"] == case.last.arguments["w"], ("medium", "special")),
        (lambda case: largest(case) > 2.0**20, ("medium", "special")),
        (lambda case: case.last.arguments["x"].layout != CONTIGUOUS, ("medium", "layout")),
        (lambda case: largest(case) > 1.7e38, ("low", "extreme")),
    ],
)  # fmt: skip
def test_the_first_class_that_shows_it_gives_the_severity(
    condition: Callable[[Case], bool], expected: tuple[str, str]
) -> None:
    bug, fake = graded(where(condition), case_of() if expected[1] == "ordinary" else case_of("huge"))
    assert bug.grade and (bug.grade.severity, bug.grade.input_class) == expected
    assert bug.grade.typical and condition(bug.grade.typical.case)
    again, other = graded(where(condition), bug.case)
    assert again.grade == bug.grade and [case.key for case in other.draws] == [case.key for case in fake.draws]


def test_no_class_is_drawn_from_more_than_200_times() -> None:
    bug, fake = graded(lambda case: None)
    assert (
        bug.grade and bug.grade.typical is None and (bug.grade.severity, bug.grade.input_class) == ("medium", "special")
    )
    assert len(fake.draws) <= 4 * 200


@pytest.mark.parametrize(
    ("least", "finding", "expected"),
    [
        (1.7e38, wrong(), Grade("low", "extreme", reason=f"{FOR_NOW}few other inputs were tried")),
        (89.0, wrong(), None),
        (1.7e38, wrong("stray-read", "bounds"), None),
    ],
)
def test_a_wrong_value_is_low_for_now_where_time_ends_and_only_extreme_inputs_were_seen_to_show_it(
    least: float, finding: Finding, expected: Grade | None
) -> None:
    class Late(FakeTriage):
        def reproduce(self, case: Case, like: Finding, **how: bool) -> Finding | None:
            raise OutOfTime

    bug = make_bug(case_of("huge"), "y", finding=finding)
    bug.least = replace(bug.least, verdict=Verdict("kernel"))
    late = Late(made(), lambda case: finding if largest(case) > least else None)
    with pytest.raises(OutOfTime):
        grade_bug(bug, late, Budget())  # type: ignore[arg-type]
    assert (bug.grade, bug.cut_off, bug.grade_in_doubt) == (expected, GRADING, True)


def test_another_symptom_is_another_bug() -> None:
    def shows(case: Case) -> Finding | None:
        return wrong("nonfinite") if largest(case) > 1e30 else wrong("value")

    bug, _ = graded(shows, case_of("huge"))
    assert bug.grade and bug.grade.input_class == "extreme" and bug.finding.symptom == "nonfinite"


def test_an_example_where_the_exact_value_blames_nobody_is_none() -> None:
    bug, _ = graded(lambda case: wrong(), verdict=Verdict("undecided"))
    assert bug.grade and bug.grade.typical is None


@pytest.mark.parametrize(
    ("symptom", "eager", "severity"),
    [
        ("value", EagerDeviation("float32", 30.0, "value"), "low"),
        ("value", EagerDeviation("float32", 20.0, "value"), "high"),
        ("value", EagerDeviation("float32", 20.0, "value", 70.0), "low"),
        ("value", EagerDeviation("float32", 20.0, "value", 90.0), "high"),
        ("value", EagerDeviation("float32", 1.3), "high"),
        ("sign", EagerDeviation("float32", 100.0, "value"), "high"),
        ("sign", EagerDeviation("float32", 100.0, "sign"), "low"),
        ("nonfinite", EagerDeviation("float32", 1e9, "sign"), "high"),
        ("nonfinite", EagerDeviation("float32", math.inf, "nonfinite"), "low"),
        ("value", None, "high"),
    ],
)
def test_eager_pytorch_excuses_the_same_symptom_with_a_quarter_of_the_error(
    symptom: str, eager: EagerDeviation | None, severity: str
) -> None:
    ratio = math.inf if symptom == "nonfinite" else 100.0
    bug, _ = graded(lambda case: wrong(symptom, ratio=ratio), eager=eager)
    assert bug.grade and bug.grade.severity == severity
    assert bug.grade.eager_ratio == (eager.ratio if eager else None) and bool(bug.grade.reason) == (severity == "low")


def test_a_sign_of_the_least_case_is_not_excused_by_a_value_of_the_typical_one() -> None:
    def shows(case: Case) -> Finding | None:
        return wrong("sign" if case.last.dims["N"] == 2 and largest(case) == 1 else "value")

    bug, _ = graded(shows, eager=EagerDeviation("float32", 100.0, "value"))
    assert bug.finding.symptom == "sign" and bug.grade and bug.grade.severity == "high"


@pytest.mark.parametrize(
    ("finding", "promise", "severity"),
    [
        (wrong("stray-read", "bounds"), {}, "medium"),
        (wrong("written", "mutation"), {}, "medium"),
        (wrong("raised", "fault"), {}, "medium"),
        (wrong("accepted", "rejects"), {}, "medium"),
        (wrong("bits", "deterministic"), {}, "medium"),
        (wrong("bits", "invariance"), {}, "medium"),
        (wrong("scale", "scaling"), {}, "medium"),
        (wrong("bits", "layout"), {"layout": "bitwise"}, "medium"),
        (wrong("drift", "layout"), {"layout": "envelope"}, "low"),
        (wrong(), {"contract": ulps(2)}, "medium"),
        (wrong(), {}, "low"),
        (wrong("before", "autograd"), {}, "low"),
    ],
)
def test_promises_and_memory_are_at_least_medium(finding: Finding, promise: dict[str, Any], severity: str) -> None:
    bug = make_bug(case_of(), finding=finding)
    assert decide_severity(bug, "extreme", False, made(**promise))[0] == severity
    assert decide_severity(bug, "ordinary", severity == "medium", made(**promise))[0] in ("high", "medium")


@pytest.mark.parametrize(
    ("numbers", "symptom", "severity"),
    [
        ((("y", 1e-44),), "value", "low"),
        ((("y", 1e-44), ("z", 1e-30)), "value", "high"),
        ((("y", 1e-44),), "nonfinite", "high"),
        ((), "value", "high"),
    ],
)
def test_wrong_results_of_subnormal_size_are_low_whatever_their_inputs(
    numbers: tuple[tuple[str, float], ...], symptom: str, severity: str
) -> None:
    bug, _ = graded(lambda case: replace(wrong(symptom), largest=numbers))
    assert bug.grade and (bug.grade.severity, bug.grade.input_class) == (severity, "ordinary")


@pytest.mark.parametrize(
    ("number", "word", "severity"),
    [(1e-41, "0x0000000000000000", "high"), (1e-310, "0x0000000000000000", "low"), (1e-41, "0x00000000", "low")],
)
def test_what_is_subnormal_is_so_in_the_dtype_that_is_accumulated_in_and_returned(
    number: float, word: str, severity: str
) -> None:
    """1e-41 of float64 is a normal number."""
    element = Element("y", (0, 0), "0.0", word, repr(number))
    found = replace(wrong(), largest=(("y", number),), elements=(element,))
    bug, _ = graded(lambda case: found, kernel=made(accumulate="float64"))
    assert bug.grade and bug.grade.severity == severity


def test_ordinary_inputs_whose_results_are_wrong_beyond_subnormals_are_high() -> None:
    """Although the least case shows a subnormal result."""

    def shows(case: Case) -> Finding | None:
        return replace(wrong(), largest=(("y", 1e-44 if case.key == case_of().key else 0.5),))

    bug, _ = graded(shows)
    assert bug.grade and bug.grade.severity == "high"


def test_an_uncertified_value_is_at_most_medium() -> None:
    bug = make_bug(case_of(), finding=wrong())
    assert decide_severity(bug, "ordinary", False, made()) == ("medium", "no exact value certifies it")


def test_offsets_of_more_than_32_bits_are_a_limit_unless_the_target_declares_such_sizes() -> None:
    finding = wrong("offset-overflow", "bounds")
    huge = size("M", 1, 1 << 20)
    declared: Target = target(x=tensor(huge, N), reference=lambda x: dict(y=x))(lambda x: dict(y=x))
    assert [is_limit(finding, case_of(), one) for one in (made(), made(large=True), declared)] == [True, False, False]
    bug, fake = graded(where(lambda case: False))
    bug = make_bug(case_of(), finding=finding)
    grade_bug(bug, fake, Budget())  # type: ignore[arg-type]
    assert bug.grade and bug.grade.severity == "low" and "limit" in bug.grade.reason


def with_layout(case: Case, layout: Layout) -> Case:
    """The case with a layout of x."""
    call = case.last
    return replace(case, calls=(call.with_argument("x", replace(call.tensors["x"], layout=layout)),))


def test_a_launch_that_fails_with_a_huge_stride_alone_is_a_limit_as_well() -> None:
    """As on a GPU, which reports an offset that has wrapped around as an illegal access."""
    finding, plain = wrong("raised", "fault"), case_of()
    huge = with_layout(plain, Layout(reach=30))
    assert [is_limit(finding, case, made()) for case in (plain, huge)] == [False, True]
    assert not is_limit(finding, huge, made(large=True)) and not is_limit(wrong(), huge, made())


def test_what_time_cuts_off_stays_without_a_grade_and_says_so() -> None:
    bug = make_bug(case_of(), finding=wrong())
    with pytest.raises(OutOfTime):
        grade_bug(bug, FakeTriage(made(), lambda case: wrong()), Budget(seconds=0.0))  # type: ignore[arg-type]
    assert bug.grade is None and bug.cut_off == GRADING and bug.counts("medium") and not bug.counts("high")
    bug.cut_off = "diagnosis"
    grade_bug(bug, FakeTriage(made(), lambda case: wrong()), Budget())  # type: ignore[arg-type]
    assert bug.grade is None and bug.cut_off == "diagnosis"


def test_a_slow_typical_case_is_counted_in_few_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of many slow replicas kept the time for grading from being asked, and all other bugs waiting."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def shows(case: Case) -> Finding | None:
        clock[0] += 0.7
        return wrong()

    case = case_of()
    bug = make_bug(case, finding=wrong())
    grade_bug(bug, FakeTriage(made(), shows), Budget(seconds=15.0))  # type: ignore[arg-type]
    assert bug.grade and bug.grade.typical
    assert bug.grade.typical.rate.certain and 4 <= bug.grade.typical.rate.runs <= 5
    assert clock[0] < 10


def test_cases_that_another_bug_explains_are_no_evidence_and_do_not_count() -> None:
    """A bug of extreme inputs was high, as 100 % of usual ones showed another bug in the same output."""

    def is_own(bug: Bug, case: Case, finding: Finding) -> bool:
        is_even = case.last.arguments["x"].bits(case.last.dims).ravel()[0] % 2 == 0
        return largest(case) > 2.0**100 and bool(is_even)

    case = case_of()
    bug, fake = make_bug(case, finding=wrong()), FakeTriage(made(), lambda case: wrong())
    grade_bug(bug, fake, Budget(), is_own)  # type: ignore[arg-type]
    assert bug.grade and bug.grade.typical and (bug.grade.severity, bug.grade.input_class) == ("low", "extreme")
    assert is_own(bug, bug.grade.typical.case, bug.finding) and not bug.grade.typical.rate.certain


def test_what_is_not_shrunk_to_the_end_is_graded_and_still_says_so() -> None:
    bug = make_bug(case_of(), finding=wrong(), cut_off="shrinking")
    with pytest.raises(OutOfTime):
        grade_bug(bug, FakeTriage(made(), lambda case: wrong()), Budget(seconds=0.0))  # type: ignore[arg-type]
    assert bug.grade is None and bug.cut_off == "shrinking"
    grade_bug(bug, FakeTriage(made(), lambda case: wrong()), Budget())  # type: ignore[arg-type]
    assert bug.grade and bug.cut_off == "shrinking"


def examined(kernel: Target, case: Case) -> Examination:
    cpu = backend("cpu")
    return Examination(kernel, kernel.launcher, case, cpu, run(kernel, kernel.launcher, case.calls, cpu))


def test_eager_pytorch_is_compared_in_the_working_precision() -> None:
    def wrong_product(x: torch.Tensor, w: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return dict(y=(x * w).bfloat16().float())

    exam = examined(made(wrong_product), case_of("normal"))
    assert AccuracyOracle().check_case(exam) is not None
    eager = compare_eager(exam, CompareEager(exam.case, 0, ("y",)))
    assert eager is not None and eager.dtype == "float32" and 0 <= eager.ratio <= 1 and not eager.symptom
    assert eager.kernel_ratio > 100


@pytest.mark.parametrize(("promise", "found"), [({}, True), ({"as_good_as": "torch"}, False)])
def test_as_good_as_torch_excuses_what_pytorch_does_as_well(promise: dict[str, Any], found: bool) -> None:
    def overflows(x: torch.Tensor, w: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return dict(y=torch.log1p(torch.exp(x)) * 1.001)

    def reference(x: torch.Tensor, w: torch.Tensor) -> Mapping[str, torch.Tensor]:
        y = torch.log1p(torch.exp(x))
        return dict(y=y * 1.001 if x.dtype == torch.float32 else y)

    kernel = made(overflows, reference=reference, **promise)
    assert (AccuracyOracle().check_case(examined(kernel, case_of("normal"))) is not None) == found


def test_as_good_as_torch_does_not_excuse_a_worse_kernel() -> None:
    kernel = made(lambda x, w: dict(y=x * w * 1.001), as_good_as="torch")
    assert AccuracyOracle().check_case(examined(kernel, case_of("normal"))) is not None


def test_few_examples_that_do_not_hold_are_tried_again() -> None:
    tried: list[Case] = []

    class Doubtful(FakeTriage):
        def reproduce(self, case: Case, like: Finding, **how: bool) -> Finding | None:
            tried.append(case)
            return None

    bug = make_bug(case_of(), "y", finding=wrong())
    grade_bug(bug, Doubtful(made(), lambda case: wrong()), Budget())  # type: ignore[arg-type]
    assert bug.grade == Grade("medium", "special") and len(tried) == 4 * 3


class Compiler(FakeTriage):
    """A kernel that Triton does not compile."""

    def examine(self, case: Case, oracle: str) -> Report:
        found = self.shows(case)
        return Report("does not compile" if found else "returned", False, (found,) if found else (), ("fault",))


def uncompiled(condition: Callable[[Case], bool], said: str, dtype: str, **promises: Any) -> Grade | None:
    """The grade of a kernel that does not compile where a condition holds, by a case with x in a dtype."""
    found = Finding("fault", ("launcher",), "compile-error", f"does not compile: CompilationError: {said}")
    case = case_of()
    x = replace(case.last.arguments["x"], dtype=dtype)
    case = replace(case, calls=(replace(case.last, arguments={**case.last.arguments, "x": x}),))
    compiler = Compiler(made(**promises), lambda case: found if condition(case) else None)
    bug = make_bug(case, "launcher", finding=found)
    grade_bug(bug, compiler, Budget())  # type: ignore[arg-type]
    return bug.grade


def test_a_dtype_that_triton_refuses_is_not_supported_and_low() -> None:
    refuses = lambda case: case.last.arguments["x"].dtype == "float16"  # noqa: E731
    grade = uncompiled(refuses, "Expected dtype ['fp32', 'fp64'] but got fp16", "float16")
    assert grade and grade.severity == "low"
    assert grade.reason == "float16 is not supported: Triton refuses it, and compiles the kernel with float32"


def test_a_dtype_that_the_author_lists_is_promised() -> None:
    refuses = lambda case: case.last.arguments["x"].dtype == "float16"  # noqa: E731
    said = "Expected dtype ['fp32', 'fp64'] but got fp16"
    grade = uncompiled(refuses, said, "float16", dtypes=("float32", "float16"))
    assert grade and grade.severity == "high"


@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        (lambda case: True, "Expected dtype ['fp32', 'fp64'] but got fp16"),
        (lambda case: case.last.arguments["x"].dtype == "float16", "x is not defined"),
    ],
)
def test_what_does_not_compile_otherwise_is_high(refuses: Callable[[Case], bool], said: str) -> None:
    grade = uncompiled(refuses, said, "float16")
    assert grade and grade.severity == "high"


@pytest.mark.parametrize("symptom, verdict", [("reference", "pending"), ("value", "reference")])
def test_a_wrong_reference_is_low_whatever_shows_it_and_without_a_grade(symptom: str, verdict: str) -> None:
    fake = FakeTriage(made(), where(lambda case: True, symptom=symptom), verdict=Verdict(verdict))
    bug = make_bug(case_of(), "y", finding=wrong(symptom))
    bug.least = replace(bug.least, verdict=Verdict(verdict))
    assert bug.severity == "low" and not bug.counts("medium")
    grade_bug(bug, fake, Budget())  # type: ignore[arg-type]
    assert bug.grade and (bug.grade.severity, bug.grade.input_class) == ("low", "ordinary")
    assert "the kernel right" in bug.grade.reason


class Helpers(WorkerTeam):
    """As many helpers as are given, which answer as a worker does."""

    def __init__(self, triage: FakeTriage, count: int) -> None:
        super().__init__((triage,) * count)  # type: ignore[arg-type]
        self.groups: list[int] = []

    def call(self, requests: Sequence[Any], timeout: float) -> Iterator[Any]:
        assert timeout == self.workers[0].timeout
        self.groups.append(len(requests))
        return map(self.workers[0].call, requests)


@pytest.mark.parametrize("most", [GROUP_ELEMENTS, 1])
@pytest.mark.parametrize("shown", [lambda case: largest(case) > 60, lambda case: False, lambda case: True])
def test_a_grade_is_the_same_where_helpers_examine_several_plans_at_a_time(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[[Case], bool], most: int
) -> None:
    """Those of which one request runs no three replicas are left to the worker."""

    def shows(case: Case) -> Finding | None:
        return wrong() if shown(case) else None

    monkeypatch.setattr(severity, "GROUP_ELEMENTS", most)
    case, kernel = case_of(), made()
    alone, beside = FakeTriage(kernel, shows), FakeTriage(kernel, shows)
    helpers = beside.helpers = Helpers(beside, 3)
    bugs = [make_bug(case, finding=wrong()) for _ in range(2)]
    for bug, fake in zip(bugs, (alone, beside), strict=True):
        grade_bug(bug, fake, Budget())  # type: ignore[arg-type]
    assert bugs[0].grade == bugs[1].grade
    assert alone.draws == beside.draws
    assert most == 1 or max(helpers.groups) == 3


def test_time_is_looked_at_before_helpers_are_asked_for_more() -> None:
    fake = FakeTriage(made(), lambda case: None)
    helpers = fake.helpers = Helpers(fake, 3)
    budget = Budget(executions=0)
    with pytest.raises(OutOfTime):
        grade_bug(make_bug(case_of(), finding=wrong()), fake, budget)  # type: ignore[arg-type]
    assert helpers.groups == []
