"""Rows of stacked replicas are compared within the bounds that screening has evaluated, as each would be alone."""

from __future__ import annotations

import math

import pytest
import torch

from fuzz import size, target, tensor
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import DTYPES
from fuzz.model.recipes import exact
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.error_bounds import drifting_places, output_bounds
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.execution.examination import Examination
from fuzz.search.engines import RandomEngine
from fuzz.target.spec import Target


def screened_replicas(made: Target, count: int) -> list[Examination]:
    engine, cpu = RandomEngine(made, 0), backend("cpu")
    plans = (engine.case(number) for number in range(1000))
    plan = next(plan for plan in plans if 64 < plan.elements() < 500 and len(plan.calls) == 1)
    cases = [plan.replica(number) for number in range(count)]
    exams = [Examination(made, made.launcher, case, cpu, run(made, made.launcher, case.calls, cpu)) for case in cases]
    screen(exams)
    assert all(exam.cleared for exam in exams)
    return exams


def test_only_rows_beyond_twice_their_bounds_may_drift_and_no_reference_is_evaluated_for_them(
    layernorm: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    exams = screened_replicas(layernorm, 4)
    monkeypatch.setattr(expected, "evaluate_backward", None)
    monkeypatch.setattr(expected, "evaluate", None)
    bounds = [next(output_bounds(exam)) for exam in exams]
    factors = torch.tensor([0.0, 1.9, 2.1, 9.0], dtype=torch.float64)
    pairs = {}
    for name in exams[0].outputs:
        values = torch.stack([exam.outputs[name].double() for exam in exams])
        far = torch.stack([bound[name].clamp(min=1e-6) for bound in bounds])
        assert bool(torch.isfinite(far).all())
        pairs[name] = values + factors.view(-1, *(1,) * (values.dim() - 1)) * far, values
    assert drifting_places(exams, pairs, range(4), lambda bound: bound.clamp(min=1e-6)) == [2, 3]
    assert drifting_places(exams, pairs, [1, 3], lambda bound: bound.clamp(min=1e-6)) == [3]


def test_bounds_begin_where_screening_ended_and_those_of_unscreened_cases_with_the_first_stage(
    layernorm: Target,
) -> None:
    (exam, *_) = screened_replicas(layernorm, 2)
    alone = Examination(layernorm, layernorm.launcher, exam.case, exam.backend, exam.outcome)
    stage = exam.screened.stage
    every, rest = list(output_bounds(alone)), list(output_bounds(exam))
    assert len(rest) == len(every) - stage
    for one, other in zip(every[stage:], rest, strict=True):
        assert all(torch.allclose(one[name], other[name], rtol=1e-6, atol=0, equal_nan=True) for name in one)
    pairs = {name: (output[None] + 1, output[None]) for name, output in alone.outputs.items()}
    assert drifting_places([alone], pairs, [0], lambda bound: bound) == [0]


def test_two_runs_may_choose_differently_where_rounding_decides() -> None:
    def best(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(places=torch.sort(x + 1.0, stable=True).indices.to(torch.int32))

    made = target(x=tensor(size("N", 2, 64)), dtypes=("float32",), reference=best)(best)
    near_and_far = exact(torch.tensor([0.0, 2.0**-30, 8.0, 9.0]).numpy().view("uint32"), DTYPES["float32"])
    case = Case("best", (Call({"N": 4}, {"x": Argument(("N",), "float32", near_and_far)}, {}),))
    exam = Examination(made, best, case, backend("cpu"), run(made, best, case.calls, backend("cpu")))
    *_, bounds = output_bounds(exam)
    assert bounds["places"].tolist() == [math.inf, math.inf, 0.0, 0.0]
