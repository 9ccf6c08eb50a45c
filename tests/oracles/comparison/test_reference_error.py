"""How well conditioned a problem is: its exact values after a change of inputs and bounds in their last digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuzz.oracles.comparison.adjudicate import to_float64
from fuzz.oracles.comparison.reference_error import LAST_DIGITS, perturb_problem
from fuzz.reference.envelope import Reference
from fuzz.reference.envelope.evaluate import COTANGENT, with_gradients
from fuzz.reference.exact import evaluate_exact

X = torch.tensor([-3.0, -0.25, 0.5, 2.0], dtype=torch.float64)


def clamped(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": x.clamp(-1, 1)}


def huber(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Its own backward, which autograd runs, clamps."""
    return {"y": F.huber_loss(x, torch.zeros_like(x), reduction="none")}


GRADIENT = with_gradients(huber, ("y",), ("x",))


@pytest.mark.parametrize(
    ("reference", "inputs", "name"),
    [(clamped, {"x": X}, "y"), (GRADIENT, {"x": X, COTANGENT + "y": torch.ones_like(X)}, "dx")],
)
def test_inputs_and_bounds_move_in_their_last_digits(
    reference: Reference, inputs: Mapping[str, Any], name: str
) -> None:
    first, second = (
        to_float64(evaluate_exact(*perturb_problem(reference, inputs, seed), quick=True).values[name])
        for seed in (0, 1)
    )
    expected = X.clamp(-1, 1)
    assert (first != second).all(), "bounds move as inputs do"
    for values in (first, second):
        assert torch.allclose(values, expected, rtol=4 * LAST_DIGITS, atol=0)
