"""Defines rules of tanh and the sigmoid, and of activations in which they are 1 in float32 before they are 1.

Where 1 - |tanh(x)| is far below a unit roundoff, each formula that kernels use adds a number to 1 that does not change
it: 1 - 2/(exp(2|x|) + 1), 2*sigmoid(2x) - 1, 1/(1 + exp(-x)). What is multiplied by x or x^3 there, such as the
1 - tanh^2 in the gradient of GELU, is 0. A quotient of two large numbers, (exp(x) - exp(-x))/(exp(x) + exp(-x)), is 1
only where the division is correctly rounded; elsewhere it may be off until exp(x) leaves the range.

A reference that writes such a formula itself keeps all noise, which shows that 1 - tanh(x) is unstable
(reference_error.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten, rounds
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, wrap
from fuzz.reference.envelope.noise import MemberNoise
from fuzz.reference.envelope.rules.composites import FORMULAS
from fuzz.reference.envelope.rules.elementwise import CORRECTLY_ROUNDED

__all__ = ["NEAR", "register", "unit"]

NEAR: Final = 16.0
"""Noise fades from a distance of u/16 from 1 on, in proportion to it: at half of u results may still be either."""
FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53
LAST: Final = 2.0**-53
"""What the float64 below 1 is less than 1."""
ACTIVATIONS = "gelu gelu_backward silu silu_backward mish glu glu_backward"


def unit(noise: MemberNoise) -> float:
    """The unit roundoff to which a number near 1 saturates: not a coarser one, as functions are computed in float32."""
    return min(noise.precision.u, FLOAT32)


def divides_exactly(noise: MemberNoise) -> bool:
    """Whether x/x is 1 for every x."""
    return 2 * noise.precision.error("div").base <= CORRECTLY_ROUNDED


def saturate(noise: MemberNoise, t: Tensor, exact: Tensor, gap: Tensor) -> Tensor:
    """The perturbed stacked t of a function that is `exact`, and `gap` from 1, with the noise that saturation leaves.

    Where x/x may be other than 1, all is left until no quotient of exponentials is in the range. The members that round
    themselves saturate by that.
    """
    if not divides_exactly(noise):
        gap = torch.where(gap < noise.precision.largest**-2, gap, 1.0)
    of_members = [FLOAT32, *(FLOAT64 if i < 0 else unit(noise) for i in noise.ids)] * noise.replicas
    units = torch.tensor(of_members, dtype=torch.float64, device=t.device).view(-1, *(1,) * (t.dim() - 1))
    share = gap.mul(NEAR).div_(units).clamp_(max=1.0)
    share[noise.rounding_rows] = 1.0
    t = torch.where(share < 1, exact + (t - exact) * share, t)
    return step_aside_(noise, t, (share < 1) & (1 - exact.abs() <= NEAR * LAST) & (gap > noise.precision.eta / 2))


def step_aside_(noise: MemberNoise, t: Tensor, lost: Tensor) -> Tensor:
    """Move t by a step of float64 towards 0 where `lost`, in every other working member.

    float64 rounds near 1 as well, to which the noise that is left may add nothing. A kernel that computes the distance
    from 1 by itself, as sigmoid(-x) or 1/cosh(x)^2, has all of it.
    """
    rows = noise.rows_of([row for row in noise.step_rows if noise.ids[row - 1] % 2 == 0])
    rows = [row for row in rows if row not in noise.rounding_rows]
    if rows and t.dtype is torch.float64:
        t[rows] -= torch.where(lost[rows], LAST * t[rows].sign(), 0.0)
    return t


@rounds
def tanh(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """tanh: its documented error, and that of an exponential, a sum and a division in 1 - |tanh|.

    In an activation where 2|x| is far below u, exp(2|x|) is 1, and so is the quotient.
    """
    noise, x = mode.noise, args[0].stacked
    exact = func(x)
    t = noise.round_function_(exact.clone(), x, noise.precision.error("tanh"))
    if not t.is_floating_point():
        return wrap(mode, t)
    steps = 2 * noise.precision.error("exp").base + 1 + 2 * noise.precision.error("div").base
    size = steps * (1 - exact.abs())
    if not mode.saturates:
        noise.add_working_error_(t, size)
        return wrap(mode, t)
    near = (x.abs() * (NEAR / unit(noise))).clamp(max=1.0) if divides_exactly(noise) else (x != 0).to(x.dtype)
    noise.add_working_error_(t, (size * near).nan_to_num(0.0))
    return wrap(mode, saturate(noise, t, exact, 2 * torch.sigmoid(-2 * x.abs())))


@rounds
def sigmoid(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sigmoid: from exp(-x), whose error grows with |x| on some backends and is divided away where x > 0.

    Where exp(-x) exceeds the largest finite value, 1/(1 + exp(-x)) is 0: results below 1/largest may be lost.
    The gradient of SiLU as f + s*(1 - f) with f = x*s loses the 1 where x exceeds 1/u: all noise is left there.
    """
    noise, x = mode.noise, args[0].stacked
    exact = func(x)
    t = noise.flush_result_(exact.clone(), 1 / noise.precision.largest)
    t = noise.round_function_(t, x.clamp(max=1.0), noise.precision.error("sigmoid"))
    if mode.saturates and t.is_floating_point():
        t = saturate(noise, t, exact, torch.where(x * unit(noise) < 1, torch.sigmoid(-x), 1.0))
    return wrap(mode, t)


def saturating(formula: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of an activation or its gradient, in whose formula tanh and the sigmoid saturate."""

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before, mode.saturates = mode.saturates, True
        try:
            with mode:
                return formula(*args, **kwargs)
        finally:
            mode.saturates = before

    return rule


@rounds
def tanh_backward(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """g*(1 - y^2): where y saturates it has no noise. It does not say where exponentials leave the range."""
    g, y = args
    if type(y) is EnsembleTensor and y.stacked.is_floating_point() and divides_exactly(noise := mode.noise):
        exact = noise.first_members(y.stacked).repeat_interleave(noise.count, 0)
        # A y of 1 does not say how near to it tanh is: perhaps just as near as the working precision can tell.
        gap = (1 - exact.abs()).clamp_(min=noise.precision.eta)
        y = wrap(mode, saturate(noise, y.stacked, exact, gap))
        y.is_reduced = args[1].is_reduced
    return ONE_MINUS_SQUARE(mode, func, (g, y), kwargs)


ONE_MINUS_SQUARE = saturating(FORMULAS["tanh_backward"])
"""The rule of the gradient of tanh, of a y without noise where it saturates."""


def register() -> None:
    """State the rules of this module, in place of those of elementary functions and composites."""
    from torch._decomp import decomposition_table

    RULES.register(tanh, "tanh")
    RULES.register(sigmoid, "sigmoid")
    for name in ACTIVATIONS.split():
        RULES.register(saturating(FORMULAS[name]), name)
    RULES.register(saturating(decomposition_table[aten.mish_backward.default]), "mish_backward")
    RULES.register(tanh_backward, "tanh_backward")
