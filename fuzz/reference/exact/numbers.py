"""Numbers: functions of mpmath's real numbers that torch knows too, with torch's answers outside their domain.

Where an argument is not finite, or mpmath raises or leaves the real numbers, the answer is what torch computes in
float64: nothing is rounded there but infinities, NaN and poles. The sign of zero is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch
from mpmath import mp, mpf

__all__ = [
    "NAN",
    "UNARY",
    "Cells",
    "Number",
    "cells",
    "divide",
    "guarded",
    "power",
    "remainder",
    "to_double",
    "format_number",
]

Number = Any
"""An mpf. mpmath has no types."""
Cells = np.ndarray[Any, np.dtype[np.object_]]
"""An array of mpf."""

NAN = mpf("nan")
LARGEST_EXPONENT = 64
"""exp of more than 2^64 is taken as infinite, of less than -2^64 as zero: mpmath would need as many bits."""


def to_double(x: Number) -> float:
    """The nearest double; what is not zero does not become zero."""
    near = float(x)
    return math.copysign(5e-324, 1 if x > 0 else -1) if near == 0 and x != 0 else near


def format_number(x: Number, digits: int = 20) -> str:
    """A number's decimal digits, for people."""
    return str(mpmath.nstr(x, digits))


def cells(values: Any) -> Cells:
    """An object array of mpf from numbers of any kind: doubles and integers are taken as they are."""
    made: Cells = np.frompyfunc(_number, 1, 1)(np.asarray(values, dtype=object))
    return np.asarray(made, dtype=object)


def _number(x: Any) -> Number:
    return x if isinstance(x, mpf) else mpf(int(x)) if isinstance(x, bool | int | np.integer | np.bool_) else mpf(x)


def guarded(f: Callable[..., Number], torchs: Callable[..., torch.Tensor]) -> Callable[..., Number]:
    """f where it is a real function of finite numbers, torch's function of doubles elsewhere."""

    def apply(*x: Number) -> Number:
        if all(mp.isfinite(one) for one in x):
            try:
                y = f(*x)
            except (ValueError, ZeroDivisionError):
                y = None
            if isinstance(y, mpf):
                return y
        return mpf(float(torchs(*(torch.tensor(to_double(one), dtype=torch.float64) for one in x))))

    return apply


def exp(x: Number) -> Number:
    """e^x."""
    if x and mp.mag(x) > LARGEST_EXPONENT:
        return mpf("inf") if x > 0 else mpf(0)
    return mp.exp(x)


def expm1(x: Number) -> Number:
    return exp(x) - 1 if abs(x) > 1 else mp.expm1(x)


def tanh(x: Number) -> Number:
    """1 - 2/(exp(2x) + 1), without mpmath's own loops for huge arguments."""
    return mp.tanh(x) if abs(x) < 2**LARGEST_EXPONENT else mp.sign(x)


def power(x: Number, y: Number) -> Number:
    """x^y; integer powers are products."""
    if y == int(y) and abs(y) < 2**LARGEST_EXPONENT:
        return x ** int(y)
    return mp.sqrt(x) if y == 0.5 else x**y


def divide(x: Number, y: Number) -> Number:
    return x / y


def remainder(x: Number, y: Number) -> Number:
    """x - y*floor(x/y)."""
    return x - y * mp.floor(x / y)


def fmod(x: Number, y: Number) -> Number:
    """x - y*trunc(x/y)."""
    return x - y * trunc(x / y)


def trunc(x: Number) -> Number:
    return mp.floor(x) if x > 0 else mp.ceil(x)


def lgamma(x: Number) -> Number:
    """log|gamma(x)|."""
    return mp.re(mp.loggamma(x))


def sinc(x: Number) -> Number:
    """sin(pi*x)/(pi*x)."""
    return mp.sinpi(x) / (mp.pi * x) if x else mpf(1)


UNARY: dict[str, Callable[[Number], Number]] = {
    "neg": lambda x: -x, "abs": abs, "sgn": mp.sign, "sign": mp.sign, "square": lambda x: x * x,
    "positive": lambda x: x, "reciprocal": lambda x: 1 / x,
    "floor": mp.floor, "ceil": mp.ceil, "round": mp.nint, "trunc": trunc, "frac": lambda x: x - trunc(x),
    "exp": exp, "exp2": lambda x: exp(x * mp.ln2), "expm1": expm1, "log": mp.log, "log1p": mp.log1p,
    "log2": lambda x: mp.log(x) / mp.ln2, "log10": mp.log10, "sqrt": mp.sqrt, "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos, "atan": mp.atan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": tanh, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "sigmoid": lambda x: 1 / (1 + exp(-x)), "erf": mp.erf, "erfc": mp.erfc, "erfinv": mp.erfinv,
    "lgamma": lgamma, "digamma": mp.digamma, "sinc": sinc, "special_erfcx": lambda x: exp(x * x) * mp.erfc(x),
    "special_log_ndtr": lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
}  # fmt: skip
"""Functions of one argument by their names in aten."""
BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "pow": power, "remainder": remainder, "fmod": fmod, "atan2": mp.atan2, "hypot": mp.hypot,
}  # fmt: skip
"""Functions of two arguments by their names in aten."""
