"""Rounds once, and measures errors in units in the last place, on tensors of any device."""

from __future__ import annotations

import torch
from torch import Tensor

from fuzz.model.dtypes import DType

EXPONENT = 0x7FF << 52


def power(value: Tensor, kind: DType, top: int) -> Tensor:
    """The power of two at or below |value| (float64), within the format's normal range and 2^top."""
    low, high = (1024 - kind.bias) << 52, (1023 + top) << 52
    return (value.view(torch.int64) & EXPONENT).clamp_(low, high).view(torch.float64)


def rounded(value: Tensor, kind: DType) -> Tensor:
    """float64 values rounded to nearest even in a narrower format, once, as float64; infinite where they overflow.

    1.5 * 2^(52 - mantissa) times the value's power of two, added and subtracted, makes the double's own adder round at
    the format's last place. torch itself rounds float64 to bfloat16 by way of float32, which is twice.
    """
    anchor = power(value, kind, kind.bias + 1) * (1.5 * 2.0 ** (52 - kind.mantissa))
    near = torch.copysign((value + anchor) - anchor, value)
    return torch.where(near.abs() > kind.largest, torch.copysign(torch.full_like(near, torch.inf), value), near)


def ulp(value: Tensor, kind: DType) -> Tensor:
    """Goldberg's unit in the last place at |value|: the spacing of the format's values in its binade.

    The same as `fuzz.model.dtypes.ulp`: never below the smallest subnormal, never above the spacing of the largest
    binade.
    Goldberg, What Every Computer Scientist Should Know, ACM CSUR 23(1), 1991.
    """
    return power(value, kind, kind.bias) * 2.0**-kind.mantissa


def ulps(got: Tensor, want: Tensor, kind: DType) -> Tensor:
    """The error of `got` against `want`, the correctly rounded result, in units in the last place at `want`.

    Both float64. 0 where they are equal or both NaN, inf where only one of them is finite.
    """
    same = (got == want) | (got.isnan() & want.isnan())
    error = (got - want).abs() / ulp(want, kind)
    return torch.where(same, 0.0, torch.where(torch.isfinite(got) & torch.isfinite(want), error, torch.inf))


def ordinals(value: Tensor) -> Tensor:
    """The place of each value of a 16-bit or 32-bit float in the order of values, int64; both zeros are 0."""
    bits = value.view(torch.int16 if value.element_size() == 2 else torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & ((1 << (8 * value.element_size() - 1)) - 1)), bits)
