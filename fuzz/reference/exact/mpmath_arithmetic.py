"""Implements numbers by mpmath: rounded to the precision in force, with errors that nothing bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import mpmath
import torch
from mpmath import mp, mpf

from fuzz.reference.dispatch import aten
from fuzz.reference.exact.arithmetic import Number, RealArithmetic, to_double

__all__ = ["MpmathArithmetic"]

LARGEST_EXPONENT = 64
"""exp of more than 2^64 is taken as infinite, of less than -2^64 as zero: mpmath would need as many bits."""


def exp(x: Number) -> Number:
    if x and mp.mag(x) > LARGEST_EXPONENT:
        return mpf("inf") if x > 0 else mpf(0)
    return mp.exp(x)


def expm1(x: Number) -> Number:
    return exp(x) - 1 if abs(x) > 1 else mp.expm1(x)


def tanh(x: Number) -> Number:
    """mpmath loops for long over huge arguments."""
    return mp.tanh(x) if abs(x) < 2**LARGEST_EXPONENT else mp.sign(x)


def power(x: Number, y: Number) -> Number:
    """x^y; integer powers are products."""
    if y == int(y) and abs(y) < 2**LARGEST_EXPONENT:
        return x ** int(y)
    return mp.sqrt(x) if y == 0.5 else x**y


def trunc(x: Number) -> Number:
    return mp.floor(x) if x > 0 else mp.ceil(x)


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "pow": power, "remainder": lambda x, y: x - y * mp.floor(x / y), "fmod": lambda x, y: x - y * trunc(x / y),
    "atan2": mp.atan2, "hypot": mp.hypot,
    "neg": lambda x: -x, "abs": abs, "square": lambda x: x * x,
    "positive": lambda x: x, "reciprocal": lambda x: 1 / x,
    "floor": mp.floor, "ceil": mp.ceil, "round": mp.nint, "trunc": trunc, "frac": lambda x: x - trunc(x),
    "exp": exp, "exp2": lambda x: exp(x * mp.ln2), "expm1": expm1, "log": mp.log, "log1p": mp.log1p,
    "log2": lambda x: mp.log(x) / mp.ln2, "log10": mp.log10, "sqrt": mp.sqrt, "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": tanh, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "sigmoid": lambda x: 1 / (1 + exp(-x)), "erf": mp.erf, "erfc": mp.erfc, "erfinv": mp.erfinv,
    "lgamma": lambda x: mp.re(mp.loggamma(x)), "digamma": mp.digamma,
    "sinc": lambda x: mp.sinpi(x) / (mp.pi * x) if x else mpf(1),
    "special_erfcx": lambda x: exp(x * x) * mp.erfc(x),
    "special_log_ndtr": lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
}  # fmt: skip


NATIVE = ("mul", "neg", "abs", "positive")
"""Functions that mpmath computes of infinities and NaN as torch does."""


class MpmathArithmetic(RealArithmetic):
    """Numbers are mpf.

    `cancelled`: a sum of terms that are not zero had less than half of the precision left. Then a result that two
    precisions agree on may only be the same because the digits that matter are beyond both.
    """

    functions = FUNCTIONS

    def __init__(self, deadline: float = math.inf) -> None:
        super().__init__(deadline)
        self.cancelled = False

    def precision(self, digits: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = mpmath.workdps(digits)
        return context

    def number(self, value: float) -> Number:
        return mpf(value)

    def is_finite(self, x: Number) -> bool:
        return bool(mp.isfinite(x))

    def sign(self, x: Number) -> int:
        return int(mp.sign(x))

    def pi(self) -> Number:
        return +mp.pi

    def sum(self, terms: Sequence[Number]) -> Number:
        total = mp.fsum(terms)
        self._note_cancellation(total, terms)
        return total

    def call(self, name: str, *x: Number) -> Number:
        return self._add(name, *x) if name in ("add", "sub") else super().call(name, *x)

    def _add(self, name: str, x: Number, y: Number) -> Number:
        """The sum or difference. mpmath adds infinities as torch does."""
        total = x + y if name == "add" else x - y
        self._note_cancellation(total, (x, y))
        return total

    def call_finite(self, name: str, *x: Number) -> Number | None:
        try:
            y = self.functions[name](*x)
        except (ValueError, ZeroDivisionError):
            return None
        return y if isinstance(y, mpf) else None

    def bind(self, name: str) -> Callable[..., Number]:
        if name in ("add", "sub"):
            return partial(self._add, name)
        return self.functions[name] if name in NATIVE else super().bind(name)

    def call_torch(self, name: str, *x: Number) -> Number:
        doubles = (to_double(one) if mp.isfinite(one) else float(one) for one in x)
        return mpf(float(getattr(aten, name)(*(torch.tensor(one, dtype=torch.float64) for one in doubles))))

    def identity(self, x: Number) -> Any:
        return x

    def sort(self, numbers: Iterable[Number]) -> list[Number]:
        return sorted(numbers)

    def require_order(self, x: Number, others: Iterable[Number]) -> None:
        """The order of numbers is known."""

    def to_integer(self, x: Number) -> int:
        return int(x)

    def to_exact_double(self, x: Number) -> float | None:
        return float(x) if x == float(x) else None

    def _note_cancellation(self, total: Number, terms: Sequence[Number]) -> None:
        size = max((m for m in map(_magnitude, terms) if m is not None), default=None)
        if size is None or not mp.isfinite(total):
            return
        left = _magnitude(total)
        if left is None or left < size - mp.prec // 2:
            self.cancelled = True


def _magnitude(x: Number) -> int | None:
    """Exponent of a number's leading bit; None for zero and what is not finite."""
    _, mantissa, exponent, bits = x._mpf_
    return exponent + bits if mantissa else None
