"""Numbers of Arb: balls, a midpoint with a radius that bounds its error, so that each result encloses the true one.

Arb (Johansson, "Arb: efficient arbitrary-precision midpoint-radius interval arithmetic", IEEE Trans. Computers 66(8),
2017) is a part of FLINT; python-flint wraps it. Numbers that are not finite are Python floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cmp_to_key, partial, reduce
from itertools import product
from typing import Any

import numpy as np
import torch
from flint import arb, arb_mat, ctx
from mpmath import mp, mpf

from fuzz.reference.dispatch import aten
from fuzz.reference.exact.arithmetic import Array, Number, RealArithmetic, Undetermined, object_array, to_double

__all__ = ["BallArithmetic"]


def floor(x: Number) -> Number:
    """The floor, if the whole ball has the same."""
    y = x.floor()
    if not y.is_exact():
        raise Undetermined("a number may be on either side of an integer")
    return y


def trunc(x: Number) -> Number:
    return -floor(-x) if x < 0 else floor(x)


def round_half_even(x: Number) -> Number:
    y = floor(x + 0.5)
    return y - 1 if y - x == 0.5 and 2 * floor(y / 2) != y else y


def lgamma(x: Number) -> Number:
    """log|gamma(x)|, by reflection for negative x."""
    return x.lgamma() if x > 0 else (arb.pi() / abs(x.sin_pi())).log() - (1 - x).lgamma()


def power(x: Number, y: Number) -> Number:
    """x^y; small integer powers are products, which Arb has no value for where x may be 0."""
    if not (y.is_integer() and abs(y) < 1024):
        return x**y
    n, square, result = abs(int(y.unique_fmpz())), x, arb(1)
    while n:
        result, square, n = result * square if n % 2 else result, square * square, n // 2
    return result if y >= 0 else 1 / result


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: arb(0) if x is y else x - y,
    "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "pow": power, "remainder": lambda x, y: x - y * floor(x / y), "fmod": lambda x, y: x - y * trunc(x / y),
    "atan2": arb.atan2, "hypot": lambda x, y: (x * x + y * y).sqrt(),
    "neg": lambda x: -x, "abs": abs, "square": lambda x: x * x, "positive": lambda x: x, "reciprocal": lambda x: 1 / x,
    "floor": floor, "ceil": lambda x: -floor(-x), "round": round_half_even, "trunc": trunc,
    "frac": lambda x: x - trunc(x),
    "exp": arb.exp, "exp2": lambda x: arb(2) ** x, "expm1": arb.expm1, "log": arb.log, "log1p": arb.log1p,
    "log2": lambda x: x.log() / arb.const_log2(), "log10": lambda x: x.log() / arb.const_log10(),
    "sqrt": arb.sqrt, "rsqrt": arb.rsqrt,
    "sin": arb.sin, "cos": arb.cos, "tan": arb.tan, "asin": arb.asin, "acos": arb.acos, "atan": arb.atan,
    "sinh": arb.sinh, "cosh": arb.cosh, "tanh": arb.tanh, "asinh": arb.asinh, "acosh": arb.acosh, "atanh": arb.atanh,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()), "erf": arb.erf, "erfc": arb.erfc, "erfinv": arb.erfinv,
    "lgamma": lgamma, "digamma": arb.digamma, "sinc": arb.sinc_pi,
    "special_erfcx": lambda x: (x * x).exp() * x.erfc(),
    "special_log_ndtr": lambda x: ((-x / arb(2).sqrt()).erfc() / 2).log(),
}  # fmt: skip

DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), (0.0, math.inf)), "log1p": (-1.0, math.inf),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), (-1.0, 1.0)), "acosh": (1.0, math.inf),
}  # fmt: skip
"""Functions that are not real outside an interval."""
GROWING = ("exp", "exp2", "expm1", "sinh", "cosh", "pow", "special_erfcx", "lgamma", "square", "hypot")
"""Functions whose results are infinite in torch where they are finite in truth."""


REMEMBERED = 1 << 15
"""Results that are kept, so that equal numbers are known to be equal."""
CHEAP = ("add", "sub", "mul", "neg")
"""Functions whose results are kept within one operation on tensors only: to look them up costs more."""


class BallArithmetic(RealArithmetic):
    """Numbers are balls, of type arb, or floats that are not finite.

    One object stands for one real number, and the same function of the same numbers gives the same object. So numbers
    that were computed in the same way are known to be equal.
    """

    functions = FUNCTIONS

    def __init__(self, deadline: float = math.inf) -> None:
        super().__init__(deadline)
        self._known: dict[tuple[Any, ...], tuple[Number, Sequence[Number]]] = {}

    def precision(self, digits: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = ctx.workdps(digits)
        return context

    def number(self, value: float) -> Number:
        return arb(value) if isinstance(value, int) or math.isfinite(value) else value

    def is_finite(self, x: Number) -> bool:
        return type(x) is arb

    def sign(self, x: Number) -> int:
        if x.is_zero():
            return 0
        self.require_order(x, [self.zero])
        return 1 if x > 0 else -1

    def pi(self) -> Number:
        return arb.pi()

    def sum(self, terms: Sequence[Number]) -> Number:
        key = ("sum", *map(id, terms))
        if key not in self._known:
            infinite = [x for x in terms if type(x) is not arb]
            self._remember(key, sum(infinite) if infinite else sum(terms, arb(0)), terms)
        return self._known[key][0]

    def matmul(self, a: Array, b: Array) -> Array:
        """The same by Arb's own product. A row and a column of the same numbers give the same number."""
        if not a.size or not b.size or any(type(x) is not arb for part in (a, b) for x in part.reshape(-1).tolist()):
            return super().matmul(a, b)
        known: dict[tuple[int, int], Number] = {}
        out = np.empty((*a.shape[:-1], b.shape[-1]), dtype=object)
        rows, columns = _number_lines(a), _number_lines(np.swapaxes(b, -1, -2))
        for place in np.ndindex(*a.shape[:-2]):
            self.check_deadline()
            product = arb_mat(a[place].tolist()) * arb_mat(b[place].tolist())
            pairs = [(row, column) for row in rows[place].tolist() for column in columns[place].tolist()]
            cells = zip(pairs, product.entries(), strict=True)
            out[place] = object_array([known.setdefault(pair, cell) for pair, cell in cells], out.shape[-2:])
        return out

    def bind(self, name: str) -> Callable[..., Number]:
        if name not in CHEAP:
            return partial(self._call_known, name)
        known: dict[tuple[int, ...], Number] = {}

        def call_once(*x: Number) -> Number:
            key = tuple(map(id, x))
            y = known.get(key)
            if y is None:
                y = known[key] = self.call(name, *x)
            return y

        return call_once

    def call(self, name: str, *x: Number) -> Number:
        for one in x:
            if type(one) is not arb:
                return self.call_torch(name, *x)
        y = self.functions[name](*x)
        return y if y.is_finite() else super().call(name, *x)

    def _call_known(self, name: str, *x: Number) -> Number:
        """A function whose results are kept."""
        key = (name, *map(self.identity, x))
        known = self._known.get(key)
        return known[0] if known is not None else self._remember(key, self.call(name, *x), x)

    def _remember(self, key: tuple[Any, ...], y: Number, x: Sequence[Number]) -> Number:
        """Keep a result by its arguments, which must live as long as their identities are keys."""
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = y, x
        return y

    def call_finite(self, name: str, *x: Number) -> Number | None:
        y = self.functions[name](*x)
        if y.is_finite():
            return y
        if not all(one.is_exact() for one in x) and not self._outside_domain(name, *x):
            raise Undetermined(f"{name}: a pole or the end of its domain may be in the ball")
        return None

    def _outside_domain(self, name: str, *x: Number) -> bool:
        """Whether a function is not real in a whole ball."""
        if name == "pow":
            return bool(x[0] < 0) and x[1].is_exact() and not x[1].is_integer()
        low, high = DOMAINS.get(name, (-math.inf, math.inf))
        return bool(x[0] < low or x[0] > high)

    def call_torch(self, name: str, *x: Number) -> Number:
        """torch's answer at every corner of the balls, if it is the same and is not rounded."""
        corners = product(*(self._ends(one) for one in x))
        answers = {_torch_answer(name, *corner) for corner in corners}
        answer = answers.pop()
        if answers or name in GROWING and math.isinf(answer) and all(type(one) is arb and one != 0 for one in x):
            raise Undetermined(f"{name}: its value where it is not finite depends on the precision")
        return self._unrounded(name, answer, x)

    def _ends(self, x: Number) -> tuple[float, ...]:
        """Doubles that enclose a number."""
        if type(x) is not arb:
            return (x,)
        if x.is_exact():
            return (to_double(x),)
        return math.nextafter(to_double(x.lower()), -math.inf), math.nextafter(to_double(x.upper()), math.inf)

    def _unrounded(self, name: str, answer: float, x: Sequence[Number]) -> Number:
        """The number that torch's answer in float64 stands for, where an argument is not finite or a pole."""
        if name in ("atan", "atan2") and math.isfinite(answer):
            return arb.pi() * round(answer * 4 / math.pi) / 4
        if name in ("fmod", "remainder") and math.isfinite(answer):
            return x[0]
        if math.isfinite(answer) and answer not in (-1.0, 0.0, 1.0, 2.0):
            raise Undetermined(f"{name}: its value where an argument is not finite is rounded")
        return self.number(answer)

    def identity(self, x: Number) -> Any:
        return x if type(x) is not arb or x.is_exact() else (id(x),)

    def sort(self, numbers: Iterable[Number]) -> list[Number]:
        pairs: list[Any] = [(x.mid(), x) for x in numbers]
        pairs.sort(key=cmp_to_key(_compare_midpoints))
        return [x for _, x in pairs]

    def require_order(self, x: Number, others: Iterable[Number]) -> None:
        for other in others:
            if not (x is other or x < other or x > other or (x.is_exact() and other.is_exact())):
                raise Undetermined("two numbers are too close to compare")

    def extreme(self, numbers: Sequence[Number], largest: bool) -> Number:
        return reduce(arb.max if largest else arb.min, numbers)

    def to_integer(self, x: Number) -> int:
        return int(trunc(x).unique_fmpz())

    def to_exact_double(self, x: Number) -> float | None:
        near = to_double(x)
        return near if x.is_exact() and x == near else None

    def is_accurate(self, array: Array, bits: int, negligible: int | None) -> bool:
        """Whether numbers are enclosed to so many bits, or by a radius of at most 2^negligible."""
        limit = None if negligible is None else arb(2) ** negligible

        def accurate(x: Number) -> bool:
            return type(x) is not arb or x.rel_accuracy_bits() >= bits or limit is not None and bool(x.rad() <= limit)

        return all(map(accurate, array.reshape(-1).tolist()))

    def to_mpf(self, array: Array) -> Array:
        """Midpoints as mpf; 0 where the ball contains it."""
        return object_array([_midpoint(x) for x in array.reshape(-1).tolist()], array.shape)


def _number_lines(array: Array) -> np.ndarray[Any, Any]:
    """(..) of the lines along the last axis of an array: lines of the same numbers have the same number."""
    numbers: dict[tuple[int, ...], int] = {}
    lines = array.reshape(-1, array.shape[-1]).tolist()
    found = [numbers.setdefault(tuple(map(id, line)), len(numbers)) for line in lines]
    return np.array(found).reshape(array.shape[:-1])


def _compare_midpoints(a: tuple[Number, Number], b: tuple[Number, Number]) -> int:
    return -1 if a[0] < b[0] else int(a[0] > b[0])


def _midpoint(x: Number) -> Number:
    if type(x) is not arb:
        return mpf(x)
    return mpf(0) if x.contains(0) else mp.make_mpf(x._mpf_)


def _torch_answer(name: str, *x: float) -> float:
    answer = float(getattr(aten, name)(*(torch.tensor(one, dtype=torch.float64) for one in x)))
    return math.nan if math.isnan(answer) else answer
