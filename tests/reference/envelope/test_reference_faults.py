"""No reference is blamed for what honest float32 kernels return, and where these are wrong, exact values say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from formulas import FORWARD, Formula
from torch import Tensor

from fuzz.backends import BACKENDS
from fuzz.model.case import Argument, Call, Case
from fuzz.model.outcome import CallResult, Returned
from fuzz.model.recipes import Exact
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.execution.examination import Examination
from fuzz.target.arguments import tensor
from fuzz.target.spec import declare

UNLIKE = {"constants", "casts", "factories", "complex_free_rope"}
"""Formulas with float64 constants or casts of their own: in float32 they are other formulas."""


def argument(x: Tensor) -> Argument:
    words = tuple(int(word) for word in x.numpy().reshape(-1).view(np.uint32))
    return Argument(tuple(map(str, x.shape)), "float32", Exact(words, "float32"))


def examined(formula: Formula, x: Tensor, w: Tensor) -> Examination | None:
    """torch's own float32 kernels under the formula, against the formula in float64; None where they refuse."""

    def launcher(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        return dict(y=formula(x, w))

    try:
        outputs = launcher(x.clone(), w.clone())
    except RuntimeError:
        return None
    target = declare(launcher, x=tensor(*x.shape), w=tensor(*w.shape), dtypes=("float32",), reference=launcher)
    case = Case("t", (Call({}, {"x": argument(x), "w": argument(w)}),))
    return Examination(target, launcher, case, BACKENDS["cpu"], Returned((CallResult(outputs),)))


def test_honest_kernels_blame_no_reference(kind: str, draw: Callable[..., Tensor]) -> None:
    seen = 0
    for name in sorted(FORWARD.keys() - UNLIKE):
        exam = examined(FORWARD[name], draw(kind, (4, 6), 0), draw(kind, (1, 6), 50)[0])
        if exam is None:
            continue
        seen += 1
        found = AccuracyOracle().check_case(exam)
        if found is not None:
            verdict = adjudicate(exam, found, 10.0)
            assert found.symptom != "reference" and verdict.name in ("kernel", "unadjudicated"), (name, verdict)
    assert seen > 70


UNSTABLE: dict[str, tuple[Any, Any, list[float]]] = {
    "1 + erf": (lambda x: torch.special.erfc(-x), lambda x: 1 + torch.erf(x), [-6.5, -8.0]),
    "1 - tanh": (lambda x: 2 / (1 + torch.exp(2 * x)), lambda x: 1 - torch.tanh(x), [20.0, 18.0]),
    "exp - 1": (torch.expm1, lambda x: torch.exp(x) - 1, [1e-20, 1e-16]),
    "log(1 + exp)": (lambda x: torch.log1p(torch.exp(x)), lambda x: torch.log(1 + torch.exp(x)), [-40.0, -36.0]),
    "sqrt - 1": (lambda x: x * x / (1 + torch.sqrt(1 + x * x)), lambda x: torch.sqrt(x * x + 1) - 1, [1e-9, 1e-8]),
    "1 - cos": (lambda x: 2 * torch.sin(x / 2) ** 2, lambda x: 1 - torch.cos(x), [1e-9, 1e-8]),
    "atanh": (torch.atanh, lambda x: 0.5 * torch.log((1 + x) / (1 - x)), [1e-18, 1e-17]),
    "s * (1 - s)": (
        lambda x: torch.sigmoid(x) * torch.sigmoid(-x),
        lambda x: torch.sigmoid(x) * (1 - torch.sigmoid(x)),
        [40.0, 37.0],
    ),
    "log sigmoid": (torch.nn.functional.logsigmoid, lambda x: torch.log(torch.sigmoid(x)), [40.0, 37.0]),
    "softmax": (lambda x: torch.softmax(x, 0), lambda x: torch.exp(x) / torch.exp(x).sum(), [1000.0, 999.0]),
}


@pytest.mark.parametrize("name", UNSTABLE)
def test_an_unstable_reference_is_blamed_by_a_stable_kernel(name: str) -> None:
    stable, unstable, values = UNSTABLE[name]
    x = torch.tensor(values)
    target = declare(lambda x: {}, x=tensor(2), dtypes=("float32",), reference=lambda x: dict(y=unstable(x)))
    case = Case("t", (Call({}, {"x": argument(x)}),))
    outcome = Returned((CallResult(dict(y=stable(x))),))
    exam = Examination(target, target.launcher, case, BACKENDS["cpu"], outcome)
    found = AccuracyOracle().check_case(exam)
    assert found is not None and adjudicate(exam, found, 10.0).name == "reference"


def found_in(reference: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Any:
    target = declare(lambda x: {}, x=tensor(*x.shape), dtypes=("float32",), reference=lambda x: dict(y=reference(x)))
    case = Case("t", (Call({}, {"x": argument(x)}),))
    exam = Examination(target, target.launcher, case, BACKENDS["cpu"], Returned((CallResult(dict(y=output)),)))
    return AccuracyOracle().check_case(exam)


@pytest.mark.parametrize("name", ["exp - 1", "1 - cos"])
def test_an_output_that_is_no_value_either_blames_no_reference(name: str) -> None:
    """It is 4 % off, as a difference that cancels in float32 is by chance, where float64 makes 0 of all."""
    stable, unstable, values = UNSTABLE[name]
    x = torch.tensor(values)
    assert found_in(unstable, x, stable(x)).symptom == "reference"
    assert found_in(unstable, x, stable(x) * 1.04) is None


@pytest.mark.parametrize("clamped", [lambda x: x.clamp(-0.125, 0.125), lambda x: torch.clamp(x, -0.125, 0.125)])
def test_sums_of_what_is_clamped_cancel_by_chance_as_others_do(clamped: Callable[[Tensor], Tensor]) -> None:
    """1/8 + x - 1/8 where inputs beyond the bounds are clamped to them: float32 adds up 1/8 - 1/8 first."""
    x = torch.tensor([3.0, 1e-20, -3.0])
    assert found_in(lambda x: clamped(x).sum(0), x, torch.tensor(1e-20)) is None
