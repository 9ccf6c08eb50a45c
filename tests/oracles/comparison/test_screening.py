"""Replicas of a plan are screened at once, and each gets the report that it would get alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import pytest
import torch

from fuzz import indices, size, target, tensor
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import recipe
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.expected import evaluate_reference
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.examine import examine, run_alone
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Expected
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import Examine, ReplicaGroup, Report

N = size("N", 1, 64)
Outputs = Mapping[str, torch.Tensor]


def exams(made: Target, launcher: Launcher, group: ReplicaGroup) -> list[Examination]:
    cpu = backend("cpu")
    return [
        Examination(made, launcher, request.case, cpu, run(made, launcher, request.case.calls, cpu))
        for request in group.requests()
    ]


def reports(made: Target, launcher: Launcher, group: ReplicaGroup, *, together: bool) -> list[Report]:
    all_of_it = exams(made, launcher, group)
    if together:
        screen(all_of_it)
    # What a process tells once is told by whichever comes first. The worst ratio of a case that agrees depends on the
    # stage that clears it, and stages of small cases alone are others.
    found = [replace(examine(exam, Examine(exam.case)), features=(), constants=()) for exam in all_of_it]
    assert all(report.worst <= 1 for report in found if not report.findings)
    return [report if report.findings else replace(report, worst=0.0) for report in found]


def assert_same_bits(known: Mapping[str, Expected], values: Mapping[str, Expected]) -> None:
    assert known.keys() == values.keys()
    for name, one in known.items():
        assert torch.equal(one.value, values[name].value) and torch.equal(one.spread, values[name].spread)


def groups(made: Target, count: int) -> list[ReplicaGroup]:
    """Later plans, of up to six replicas, that are small."""
    engine = RandomEngine(made, 0)
    plans = (engine.case(number) for number in range(1000))
    small = (plan for plan in plans if plan.elements() < 500 and len(plan.calls) == 1)
    return [ReplicaGroup(plan, ((),) * 6) for plan in islice(small, count)]


@pytest.mark.parametrize("bug", ["", "bessel", "low_precision_accumulate"])
def test_a_replica_is_told_what_it_would_be_told_alone(layernorm: Target, bug: str) -> None:
    launcher = load_planted(layernorm, bug)[1] if bug else layernorm.launcher
    found = 0
    for group in groups(layernorm, 7):
        alone = reports(layernorm, launcher, group, together=False)
        assert reports(layernorm, launcher, group, together=True) == alone
        found += sum(report.primary_finding is not None for report in alone)
    assert bool(found) == bool(bug)


def test_the_reference_of_a_cleared_replica_is_not_evaluated_again(
    layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group,) = groups(layernorm, 1)
    screened, alone = (exams(layernorm, layernorm.launcher, group) for _ in range(2))
    screen(screened)
    due = [evaluate_reference(exam, 0, screened[0].screened.stage) for exam in alone]
    monkeypatch.setattr(expected, "evaluate_backward", None)
    monkeypatch.setattr(expected, "evaluate", None)
    for exam, values in zip(screened, due, strict=True):
        assert_same_bits(evaluate_reference(exam, 0, exam.screened.stage), values)


def test_nor_is_that_of_a_replica_that_was_not_cleared_in_a_run_of_its_own(
    layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = load_planted(layernorm, "bessel")[1]
    runner = CaseRunner(layernorm, launcher, backend("cpu"))
    (group,) = groups(layernorm, 1)
    stack = runner.run_replicas(group.plan, len(group.sampled))
    screen(stack)
    exam = next(exam for exam in stack if exam.uncleared)
    stages = [one.stage for one in exam.uncleared[0]]
    alone = runner.run(exam.case)
    due = [evaluate_reference(alone, 0, stage) for stage in stages]
    monkeypatch.setattr(expected, "evaluate_backward", None)
    monkeypatch.setattr(expected, "evaluate", None)
    again = run_alone(runner, exam)
    for stage, values in zip(stages, due, strict=True):
        assert_same_bits(evaluate_reference(again, 0, stage), values)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        *(("cross_entropy", bug) for bug in ("", "max_sees_padding", "smoothing_over_others")),
        *((name, "") for name in ("cross_entropy_bw", "cross_entropy_function")),
    ],
)
def test_replicas_with_labels_of_their_own_are_screened_at_once(name: str, bug: str) -> None:
    made = load(name)
    launcher = load_planted(made, bug)[1] if bug else made.launcher
    found = 0
    for group in groups(made, 6):
        alone = reports(made, launcher, group, together=False)
        all_of_it = exams(made, launcher, group)
        screen(all_of_it)
        assert bug or all(exam.cleared for exam in all_of_it)
        assert reports(made, launcher, group, together=True) == alone
        found += sum(report.primary_finding is not None for report in alone)
    assert bool(found) == bool(bug)


def test_a_reference_that_fails_on_all_at_once_is_asked_replica_by_replica() -> None:
    @target(x=tensor(N), labels=indices(N, below=N), reference=lambda x, labels: dict(y=x * labels.bincount().numel()))
    def counted(x: torch.Tensor, labels: torch.Tensor) -> Outputs:
        return dict(y=x * labels.bincount().numel())

    made = exams(counted, counted.launcher, groups(counted, 1)[0])
    screen(made)
    assert not any(exam.cleared for exam in made)
    assert all(examine(exam, Examine(exam.case)).primary_finding is None for exam in made)


def test_one_wrong_replica_is_not_hidden_by_the_others() -> None:
    calls = 0

    @target(x=tensor(N), reference=lambda x: dict(y=2 * x))
    def third_is_wrong(x: torch.Tensor) -> Outputs:
        nonlocal calls
        calls += 1
        return dict(y=2 * x + (calls == 3))

    made = exams(third_is_wrong, third_is_wrong.launcher, groups(third_is_wrong, 1)[0])
    screen(made)
    assert [exam.cleared for exam in made] == [True, True, False, True, True, True]


def test_outputs_without_dims_are_screened_at_once() -> None:
    @target(x=tensor(N), reference=lambda x: dict(y=x.sum()))
    def total(x: torch.Tensor) -> Outputs:
        return dict(y=x.double().sum().to(x.dtype))

    made = exams(total, total.launcher, groups(total, 1)[0])
    screen(made)
    assert all(exam.cleared for exam in made)


def test_gradients_are_screened_at_once() -> None:
    @target(x=tensor(N), differentiable=dict(y=tensor(N)), reference=lambda x: dict(y=x * x))
    def square(x: torch.Tensor) -> Outputs:
        return dict(y=x * x)

    made = exams(square, square.launcher, groups(square, 1)[0])
    screen(made)
    assert all(exam.cleared for exam in made)


@pytest.mark.parametrize("shares_integers", [False, True])
def test_a_reference_that_branches_on_values_is_asked_replica_by_replica_where_they_differ(
    shares_integers: bool,
) -> None:
    @target(x=tensor(N), n=indices(N, below=2), reference=lambda x, n: dict(y=x if bool(n[0] > 0) else -x))
    def signed(x: torch.Tensor, n: torch.Tensor) -> Outputs:
        return dict(y=x.clone() if bool(n[0] > 0) else -x)

    x, n = Argument(("N",), "float32", recipe("normal", 1)), Argument(("N",), "int64", recipe("indices", 2, below=2))
    plan = Case(signed.name, (Call({"N": 3}, {"x": x, "n": n}),), shares_integers=shares_integers)
    made = exams(signed, signed.launcher, ReplicaGroup(plan, ((),) * 6))
    assert len({int(exam.words("n")[0]) for exam in made}) == (1 if shares_integers else 2)
    screen(made)
    assert all(exam.cleared == shares_integers and exam.diverged != shares_integers for exam in made)
    assert all(examine(exam, Examine(exam.case)).primary_finding is None for exam in made)
