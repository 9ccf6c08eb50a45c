"""What the stages of the envelope, one after the other, say of a case is what the last one says of it alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fuzz import size, tensor
from fuzz.backends import BACKENDS, cpu
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import Exact
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.target.spec import declare
from fuzz.worker.protocol import Examine

T, E = size("T", 4, 4), size("E", 5, 5)
ONE, LOWER, UPPER, TIED = 0x3F800000, 0x3F699A33, 0x3F699A34, 0x3EC302E4


@pytest.fixture
def active() -> Iterator[None]:
    cpu.activate()
    yield
    cpu.deactivate()


def route(logits: torch.Tensor, bias: torch.Tensor) -> dict[str, torch.Tensor]:
    """The two experts of each token by logit and bias, and the places of tokens among those of an expert."""
    chosen = torch.sort(logits + bias, dim=1, descending=True, stable=True).indices[:, :2]
    hot = (chosen.t().reshape(-1)[:, None] == torch.arange(5)).long()
    places = ((hot.cumsum(0) - hot) * hot).sum(1).view(2, 4).t()
    return {"experts": chosen, "places": torch.where(places < 1, places, -1)}


@pytest.mark.usefixtures("active")
def test_two_values_that_rounding_makes_equal_may_be_taken_in_either_order() -> None:
    """0.91250914 + 1 and 0.9125092 + 1 are one number in float32, and what comes of it is right in all outputs."""
    logits = (0,) * 13 + (LOWER, UPPER) + (0,) * 3 + (TIED, TIED)
    values = {"logits": (("T", "E"), logits), "bias": (("E",), (0, 0, ONE, ONE, ONE))}
    arguments = {name: Argument(shape, "float32", Exact(bits, "float32")) for name, (shape, bits) in values.items()}
    case = Case("route", (Call({"T": 4, "E": 5}, arguments),))
    target = declare(route, logits=tensor(T, E), bias=tensor(E), dtypes=("float32",), reference=route)
    runner = CaseRunner(target, target.launcher, BACKENDS["cpu"])
    exact, rounded = (route(*(arguments_of(case, dtype))) for dtype in (torch.float64, torch.float32))
    assert not torch.equal(exact["places"], rounded["places"])
    assert not examine(runner.run(case), Examine(case)).findings
    in_turn, alone = runner.run(case), runner.run(case)
    for stage in range(len(STAGES)):
        evaluate_reference(in_turn, 0, stage)
    last = len(STAGES) - 1
    for name, one in evaluate_reference(alone, 0, last).items():
        assert bool((evaluate_reference(in_turn, 0, last)[name].spread >= one.spread).all())


def arguments_of(case: Case, dtype: torch.dtype) -> list[torch.Tensor]:
    call = case.last
    words = [torch.from_numpy(value.bits(call.dims).astype("int32")) for value in call.arguments.values()]
    return [one.view(torch.float32).to(dtype) for one in words]
