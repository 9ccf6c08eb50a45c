"""Evaluates a reference in interval arithmetic: float64 with a bound of all that it rounds, for tensors of any size.

It proves where an exact value lies where exact evaluation takes too long: a sum of n terms is off by at most n*u times
the sum of their magnitudes, whatever the order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Two
things are assumed: torch's elementary functions in float64 are within 8 units in the last place, and its products of
matrices and convolutions add up products, in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fuzz.errors import Unadjudicated, one_line
from fuzz.reference.dispatch import NoRule
from fuzz.reference.envelope import float64_defaults
from fuzz.reference.envelope.evaluate import check_outputs
from fuzz.reference.envelope.rules import composites, grid_sample, norms_and_losses
from fuzz.reference.exact.evaluate import Formulas
from fuzz.reference.exact.rules.composites import OWN
from fuzz.reference.interval import movement, rules
from fuzz.reference.interval.tensor import RULES, IntervalMode, Pair, make_tensor

__all__ = ["Interval", "evaluate_intervals"]

Interval = Pair

movement.register()
rules.register()
RULES.register_formulas({**composites.FORMULAS, **norms_and_losses.FORMULAS, **grid_sample.FORMULAS, **OWN})
RULES.register_decompositions(*composites.FROM_TORCH.split())


def evaluate_intervals(
    reference: Callable[..., Mapping[str, Tensor]], inputs: Mapping[str, Any], *, seconds: float
) -> dict[str, Interval]:
    """reference(**inputs) by intervals; those of integers and bools are exact. Inputs are the numbers that they are.

    Raises `Unadjudicated` with the reason where there is no rule for an operation, a decision depends on numbers that
    are too close, or the time is spent.
    """
    mode = IntervalMode(time.monotonic() + seconds)
    arguments = {name: x.detach().cpu().clone() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    lifted = {
        name: make_tensor(mode.pair(x)) if isinstance(x, Tensor) and x.is_floating_point() else x
        for name, x in arguments.items()
    }
    try:
        with float64_defaults(), Formulas(), mode:
            outputs = check_outputs(reference, reference(**lifted))
    except (Unadjudicated, NoRule) as error:
        raise Unadjudicated(one_line(error)) from None
    except Exception as error:
        raise Unadjudicated(f"the reference fails over intervals: {one_line(error)}") from error
    return {
        name: mode.pair(t) if t.is_floating_point() else Pair(t, torch.zeros(t.shape, dtype=torch.float64))
        for name, t in outputs.items()
    }
