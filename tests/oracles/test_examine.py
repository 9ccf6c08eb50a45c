"""The response of a worker to a case that it has examined before, and where memory or the process ends meanwhile."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from triton.compiler.errors import CompileTimeAssertionFailure

from fuzz import indices, size, target, tensor
from fuzz.backends import BACKENDS, backend, cpu
from fuzz.backends.execute import FatalError
from fuzz.model.case import Case, ListedPlan
from fuzz.model.edit import with_values
from fuzz.model.finding import Finding, Verdict
from fuzz.model.outcome import Died
from fuzz.model.recipes import recipe
from fuzz.oracles import examine
from fuzz.oracles.comparison import expected
from fuzz.oracles.execution import case_runner
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.oracles.execution.examination import Examination
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes.dims import BATTERY, all_contiguous, fill
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.worker.protocol import Adjudicate, Diagnose, Examine, ReplicaGroup, Report, WorkerConfig

N = size("N", 2, 40)


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    """A worker activates the backend for good; this process lives on."""
    yield
    cpu.deactivate()


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_memory_that_ends_in_the_oracles_is_no_finding(
    case: Case, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def full(*_: object) -> None:
        raise error("no space left")

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "examine_or_adjudicate", full)
    monkeypatch.setattr(examine, "diagnose_case", full)
    monkeypatch.setattr(examine, "screen", full)
    told = Report(f"not run: no room to examine it: {error.__name__}: no space left", False, (), (), not_run=True)
    assert handle(Examine(case)) == told
    assert handle(ReplicaGroup(case, ((), ()))) == (told, told)
    assert handle(Adjudicate(case, 1.0)) == Verdict("unadjudicated", told.outcome.removeprefix("not run: "))
    assert handle(Diagnose(case, case)) == ()


def test_a_device_that_cannot_be_used_is_named_as_such(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: all devices are busy or unavailable")

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "examine_or_adjudicate", fails)
    monkeypatch.setattr(BACKENDS["cpu"], "is_unusable", lambda error: "busy" in str(error))
    report = handle(Examine(case))
    assert isinstance(report, Report) and report.not_run
    assert report.outcome.startswith("not run: the device cannot be used: RuntimeError: CUDA error")


def test_memory_of_the_device_is_released_after_each_answer(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, released = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu")), Mock()
    monkeypatch.setattr(BACKENDS["cpu"], "release_memory", released)
    for request in (Examine(case), ReplicaGroup(case, ((), ())), Diagnose(case, case)):
        handle(request)
    assert released.call_count == 3
    monkeypatch.setattr(examine, "examine_or_adjudicate", Mock(side_effect=MemoryError))
    assert handle(Examine(case)).not_run and released.call_count == 4, "who waits for memory keeps none"


def test_a_device_that_is_lost_while_oracles_compute_ends_the_process(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has harmed it, and the pool then looks for the case; another error of ours is passed on."""

    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "screen", fails)
    ended = Mock(side_effect=SystemExit)
    monkeypatch.setattr(examine.os, "_exit", ended)
    with pytest.raises(RuntimeError, match="CUDA error"):
        handle(ReplicaGroup(case, ((), ())))
    assert not ended.called
    monkeypatch.setattr(BACKENDS["cpu"], "is_fatal", lambda error: "CUDA error" in str(error))
    with pytest.raises(SystemExit):
        handle(ReplicaGroup(case, ((), ())))
    ended.assert_called_once_with(1)


def disagreeing() -> tuple[CaseRunner, ReplicaGroup]:
    """A launcher that is wrong in every case of more than one element, and twelve replicas of such a plan."""
    target, launcher, backend = examine.set_up_process(WorkerConfig("layernorm_bw", "sign_of_c2", "cpu"))
    engine = RandomEngine(target, 0)
    plans = (engine.case(number) for number in range(100))
    plan = next(plan for plan in plans if len(plan.calls) == 1 and 100 < plan.elements() < 500)
    return CaseRunner(target, launcher, backend), ReplicaGroup(plan, ((),) * 12)


@pytest.mark.parametrize("together", [True, False])
def test_of_replicas_that_disagree_the_first_eight_are_examined(together: bool) -> None:
    runner, group = disagreeing()
    first = runner.run(group.plan)
    reports = examine.examine_group(runner, group) if together else examine.examine_in_turn(runner, [first], group)
    assert isinstance(reports, tuple)
    assert [len(report.findings) for report in reports] == [1] * 8 + [0] * 4
    assert set(reports[8:]) == {examine.UNEXAMINED} and not examine.UNEXAMINED.examined


def listed(target: Target, count: int) -> list[Case]:
    """Small cases of one structure, whose values are of different recipes."""
    engine = RandomEngine(target, 0)
    plans = (engine.case(number) for number in range(400))
    first = next(all_contiguous(plan) for plan in plans if len(plan.calls) == 1 and 100 < plan.elements() < 500)
    floating = [name for name, value in first.last.arguments.items() if value.is_float]
    mixed = (
        with_values(fill(first, values), 0, floating[number % len(floating)], other)
        for number, (values, other) in enumerate(product(BATTERY, repeat=2))
    )
    return list(islice(mixed, count))


@pytest.mark.parametrize("is_sought", [True, False])
@pytest.mark.parametrize("bug", [None, "bessel", "sign_of_c2", "low_precision_accumulate"])
def test_listed_cases_are_told_what_they_would_be_told_alone(bug: str | None, is_sought: bool) -> None:
    """Up to the first that shows what is sought, if any does; which of those after it may disagree is not examined."""
    target, launcher, backend = examine.set_up_process(WorkerConfig("layernorm_bw", bug, "cpu"))
    runner = CaseRunner(target, launcher, backend)
    cases = listed(target, 40)
    alone = [examine.examine(runner.run(case), Examine(case)) for case in cases]
    shown = next((report.findings[0] for report in alone if report.findings), None)
    assert (shown is None) == (bug is None)
    sought = shown if shown and is_sought else Finding("accuracy", ("nothing",), "value", "m")
    reports = examine.examine_group(runner, ReplicaGroup(ListedPlan.of(cases), ((),) * 40, sought=sought))
    assert isinstance(reports, tuple) and len(reports) == 40
    first = next((number for number, report in enumerate(alone) if report.shown(sought)), 40)
    for number, (one, report) in enumerate(zip(alone, reports, strict=True)):
        if number <= first:
            assert report.findings == one.findings and report.examined
        elif report != examine.UNEXAMINED:
            assert not one.findings and not report.findings


def always(calls: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("fails", "error", "ran"),
    [
        (always, RuntimeError("out of resource: shared memory"), 8),
        (lambda calls: calls != 5, RuntimeError("out of resource: shared memory"), 12),
        (always, ValueError("K must be 16 or more"), 8),
        (always, CompileTimeAssertionFailure(None, ast.parse("x").body[0], "K must be 16 or more"), 1),
        (lambda calls: calls == 1, CompileTimeAssertionFailure(None, ast.parse("x").body[0], "16 or more"), 1),
    ],
)
def test_where_the_first_eight_replicas_fail_or_one_does_not_compile_the_others_do_not_run(
    fails: Callable[[int], bool], error: Exception, ran: int
) -> None:
    calls = []

    @target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x))
    def breaks(x: torch.Tensor) -> dict[str, torch.Tensor]:
        calls.append(x)
        if fails(len(calls)):
            raise error
        return dict(y=x.clone())

    cpu.activate()
    runner = CaseRunner(breaks, breaks.launcher, BACKENDS["cpu"])
    plan = next(case for number in range(9) if len((case := RandomEngine(breaks, 0).case(number)).calls) == 1)
    reports = examine.examine_group(runner, ReplicaGroup(plan, ((),) * 12))
    assert isinstance(reports, tuple) and len(reports) == len(calls) == ran
    assert [report.outcome == "returned" for report in reports].count(False) == ran - (ran > 8) * 4


def test_replicas_that_are_too_large_together_are_examined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, group = disagreeing()
    good = CaseRunner(runner.target, runner.target.launcher, runner.backend)
    sizes, examine_stack = [], examine.examine_stack

    def noted(runner: CaseRunner, exams: Sequence[Examination], part: ReplicaGroup) -> tuple[Report, ...]:
        sizes.append(len(exams))
        assert [exam.case for exam in exams] == [request.case for request in part.requests()]
        return examine_stack(runner, exams, part)

    monkeypatch.setattr(examine, "examine_stack", noted)
    at_once = examine.examine_group(good, group)
    outputs = sum(output.numel() for output in good.run(group.plan).outputs.values())
    monkeypatch.setattr(case_runner, "LARGEST_STACK", 5 * (group.plan.elements() + outputs))
    in_parts = examine.examine_group(good, group)
    assert sizes == [12, 5, 5, 2]
    assert isinstance(at_once, tuple) and isinstance(in_parts, tuple)
    assert [report.examined for report in in_parts] == [report.examined for report in at_once]
    assert not any(report.findings for report in (*at_once, *in_parts))
    assert at_once[0].output_sizes == in_parts[0].output_sizes
    assert sum(dict(at_once[0].output_sizes).values()) == outputs
    found = examine.examine_group(runner, group)
    assert isinstance(found, tuple) and [len(report.findings) for report in found] == [1] * 12


def test_a_replica_that_ends_the_process_is_looked_for_where_each_runs_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise FatalError(Died("an illegal address"))

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "examine_stack", end)
    monkeypatch.setattr("os._exit", Mock(side_effect=SystemExit))
    # Without a response the pool runs each replica in a process of its own.
    with pytest.raises(SystemExit):
        handle(ReplicaGroup(case, ((), ())))


def test_the_reference_of_a_case_that_runs_again_is_evaluated_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Mock(side_effect=expected.evaluate)
    monkeypatch.setattr(expected, "evaluate", evaluate)
    handle = examine.make_handler(WorkerConfig("gelu_bw", "tanh_form", "cpu"))
    value = case.last.arguments["x"]
    other = replace(case, calls=(case.last.with_argument("x", replace(value, values=recipe("normal", 3))),))
    counts, reports = [], []
    # The first report tells what loading the kernel showed, where no test of this process has loaded it before.
    for one in (other, case, case, other, case):
        before = evaluate.call_count
        reports.append(handle(Examine(one)))
        counts.append(evaluate.call_count - before)
    assert counts[1] == counts[4] > 0 and counts[2] == 0 and counts[3] > 0
    assert reports[1] == reports[2] == reports[4] != reports[3]


IMPORTING = """
from fuzz import size, target, tensor

@target(x=tensor(size("N", 1, 8)), reference=lambda x: dict(y=x * 2), imports=("no_such_module", "imported_at_a_call"))
def importing(x):
    import imported_at_a_call
    return dict(y=x * 2)
"""


def test_workers_import_with_the_target_what_its_calls_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_at_a_call.py").touch()
    path = tmp_path / "importing.py"
    path.write_text(IMPORTING)
    monkeypatch.syspath_prepend(tmp_path)
    load(str(path))
    assert "imported_at_a_call" not in sys.modules
    examine.set_up_process(WorkerConfig(str(path), None, "cpu"))
    assert sys.modules.pop("imported_at_a_call")


@pytest.mark.parametrize("reads_in", ["", "launcher", "reference"])
@pytest.mark.parametrize("shares_integers", [False, True])
def test_replicas_whose_integers_python_reads_run_one_by_one_unless_they_share_them(
    reads_in: str, shares_integers: bool
) -> None:
    def scaled(where: str) -> Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]:
        return lambda x, n: dict(y=x * (n[0].item() if where == reads_in else n[0]))

    declared = target(x=tensor(N), n=indices(N, below=7), reference=scaled("reference"))(scaled("launcher"))
    runner, engine = CaseRunner(declared, declared.launcher, backend("cpu")), RandomEngine(declared, 0)
    plan = next(one for one in map(engine.case, range(99)) if not one.split and one.last.dims["N"] > 2)
    group = ReplicaGroup(replace(plan, shares_integers=shares_integers), ((),) * 6)
    cpu.activate()
    reports = examine.examine_group(runner, group)
    assert isinstance(reports, tuple)
    assert reports[0].one_by_one == (bool(reads_in) and not shares_integers)
    assert not any(report.one_by_one or report.findings for report in reports[1:])
