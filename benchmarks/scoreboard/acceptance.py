"""Acceptance rules in use, each as a function: does this output pass?

All of them get the float64 reference, which is kinder than what some projects compare with. Where both sides are NaN or
the same infinity, all of them pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LOW = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


@dataclass(frozen=True)
class Compared:
    """One output of one case.

    out: what the kernel gave. due: float64. eager: the reference in the output's dtype, by torch. terms: how many terms
    a reduction that leads to an element has.
    """

    out: Tensor
    due: Tensor
    eager: Tensor
    terms: int

    @property
    def dtype(self) -> str:
        return LOW[self.out.dtype]


Rule = Callable[[Compared], bool]


def close(one: Compared, rtol: float, atol: float) -> bool:
    """|out - due| <= atol + rtol*|due| everywhere, due rounded to the output's dtype as torch does it."""
    return bool(torch.isclose(one.out, one.due.to(one.out.dtype), rtol=rtol, atol=atol, equal_nan=True).all())


def assert_close(one: Compared) -> bool:
    """The defaults of torch.testing.assert_close."""
    return close(one, {"float32": 1.3e-6, "bfloat16": 1.6e-2, "float16": 1e-3}[one.dtype], 1e-5)


def kernelbench(one: Compared) -> bool:
    """atol = rtol = 1e-4 in float32, 1e-2 in half precision."""
    tolerance = 1e-4 if one.dtype == "float32" else 1e-2
    return close(one, tolerance, tolerance)


def liger(one: Compared) -> bool:
    """The tolerances of its layer-norm test: 1e-5 in float32, 2e-2 in half precision."""
    tolerance = 1e-5 if one.dtype == "float32" else 2e-2
    return close(one, tolerance, tolerance)


def flaggems(one: Compared) -> bool:
    """atol = 1e-4 times the number of terms, rtol by dtype."""
    return close(one, {"float32": 1.3e-6, "bfloat16": 0.016, "float16": 1e-3}[one.dtype], 1e-4 * one.terms)


def flash_attention(one: Compared) -> bool:
    """The largest error is at most twice eager's in the same dtype, plus twice that of adding and taking away 0.3."""
    due = one.due.to(one.out.dtype)
    return is_within_eager(one, 2 * (due + 0.3 - 0.3 - due).double().abs())


def twice_eager(one: Compared) -> bool:
    """The largest error is at most twice eager's in the same dtype, plus the output's own rounding."""
    return is_within_eager(one, one.due.abs() * torch.finfo(one.out.dtype).eps / 2)


def is_within_eager(one: Compared, slack: Tensor) -> bool:
    """Whether the largest error is at most twice eager's plus the largest slack, where what is due is finite."""
    due = one.due.to(one.out.dtype)
    alike = (one.out == due) | (one.out.isnan() & due.isnan())
    known = torch.isfinite(one.due) & torch.isfinite(due)
    if bool((~known & ~alike).any()):
        return False
    if not bool(known.any()):
        return True
    error, eager = (float((t.double() - one.due)[known].abs().max()) for t in (one.out, one.eager))
    return error <= 2 * eager + float(slack[known].max())


RULES: dict[str, Rule] = {
    "`torch.testing.assert_close`": assert_close,
    "KernelBench": kernelbench,
    "Liger": liger,
    "FlagGems": flaggems,
    "FlashAttention": flash_attention,
    "float64 within twice eager": twice_eager,
}
