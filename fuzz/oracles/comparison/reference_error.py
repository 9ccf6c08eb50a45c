"""Finds outputs that agree with their reference only because its float64 value is too inaccurate to disagree.

Perturbing an unstable formula gives a wide envelope, in which a right output lies as well as a wrong one. Such a
formula gives itself away where a kernel's output is as near to the reference as float64's own error, though that error
is large against the output: a kernel that works in float32 has no business being there, unless its formula is better.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.reference.envelope import UNIT64, Expected, Precision

COARSE = 2.0**-6
"""Error relative to the output from which on a value tells little about it: bfloat16 rounds to 2^-9."""
NEAR_REFERENCE = 64.0
"""How many times float64's own error, as few members see it, an output may be from the reference."""
BETTER = 16.0
"""How much nearer to the exact value than the reference an output has to be."""


def suspect_reference(output: torch.Tensor, expected: Expected, precision: Precision) -> torch.Tensor:
    """Elements whose reference may be worse than the output, as bools; replicas may be stacked."""
    if not output.is_floating_point() or precision.u < 2.0**-40:
        return torch.zeros(output.shape, dtype=torch.bool, device=expected.value.device)
    output = output.to(expected.value.device)
    own, unit = own_error(expected, precision)
    size = output.abs()
    coarse = own * (unit / COARSE) > size
    if not bool(coarse.any()):
        return coarse
    near = (output.double() - expected.value).abs() <= own * (unit * NEAR_REFERENCE)
    return coarse & near & (size >= least(DTYPE_NAMES[output.dtype])) & torch.isfinite(own)


def own_error(expected: Expected, precision: Precision) -> tuple[torch.Tensor, float]:
    """Float64's own error, in a unit; estimated from the spread where it was not measured."""
    if expected.uncertainty is None:
        return expected.spread, UNIT64 / precision.u
    return expected.uncertainty, 1.0


@lru_cache
def least(name: str) -> float:
    """The smallest normal number: below it an output has too few digits to be better than anything."""
    return named_dtype(name).smallest_normal


def reference_much_worse(output: torch.Tensor, expected: Expected, exact: torch.Tensor) -> torch.Tensor:
    """Elements whose reference is wrong and whose output is much better, by their exact values as doubles."""
    error = (expected.value - exact).abs()
    better = (output.to(exact.device).double() - exact).abs() * BETTER <= error
    return better & (error > COARSE * exact.abs()) & torch.isfinite(exact)
