"""Finds outputs that agree with their reference only because its float64 value is too inaccurate to disagree.

Perturbing an unstable formula gives a wide envelope, in which a right output lies as well as a wrong one. Such a
formula gives itself away where a kernel's output is as near to the reference as float64's own error, though that error
is large against the output: a kernel that works in float32 has no business being there, unless its formula is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.reference.envelope import UNIT64, Expected, Precision, Reference

COARSE = 2.0**-6
"""Error relative to the output from which on a value tells little about it: bfloat16 rounds to 2^-9."""
NEAR_REFERENCE = 64.0
"""How many times float64's own error, as few members see it, an output may be from the reference."""
LAST_DIGITS = 2.0**-48
"""By how much of themselves inputs are perturbed to see how well conditioned a problem is."""
CLAMPS = ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
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
    """Elements whose reference is wrong and whose output is right, by their exact values as doubles.

    Where the output is no value either, such as the 0 that float32 makes of a difference, it is near by chance.
    """
    error, size = (expected.value - exact).abs(), COARSE * exact.abs()
    own = (output.to(exact.device).double() - exact).abs()
    return (own * BETTER <= error) & (own <= size) & (error > size) & torch.isfinite(exact)


def perturb_problem(reference: Reference, inputs: Mapping[str, Any], seed: int) -> tuple[Reference, dict[str, Any]]:
    """Floating inputs changed by up to `LAST_DIGITS` of themselves, and a reference that clamps to bounds changed so.

    Inputs beyond a bound cannot move what is computed of them, and sums of them would seem to be better conditioned
    than they are.
    """
    generator = np.random.default_rng(seed)
    perturbed = dict(inputs)
    for name, x in inputs.items():
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            perturbed[name] = torch.where(torch.isfinite(x), x * _near_one(x.shape, generator), x)

    def moved(**arguments: Any) -> Mapping[str, torch.Tensor]:
        with MovedBounds(seed):
            return reference(**arguments)

    return moved, perturbed


class MovedBounds(TorchFunctionMode):
    """Perturbs what is clamped to a bound."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = np.random.default_rng(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in CLAMPS or not out.is_floating_point():
            return out
        return torch.where(out == args[0], out, out * _near_one(out.shape, self.generator))


def _near_one(shape: torch.Size, generator: np.random.Generator) -> torch.Tensor:
    """Factors that change the last digits of doubles.

    Drawn by numpy, as exact arithmetic, in which clamps are perturbed, has no rule for random numbers.
    """
    return torch.from_numpy(np.asarray(1 + generator.uniform(-1, 1, shape) * LAST_DIGITS))
