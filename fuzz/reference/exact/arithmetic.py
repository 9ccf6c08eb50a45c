"""Base of the number systems that exact evaluation computes in.

An arithmetic has torch's functions by their names in aten. Where an argument is not finite, or the function is not real
(a pole, the logarithm of a negative number), the answer is torch's in float64: infinities, NaN and poles are not
rounded. The sign of zero is not kept.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from fuzz.errors import FuzzError, Unadjudicated

__all__ = ["BINARY", "UNARY", "Array", "Number", "RealArithmetic", "Undetermined", "object_array", "to_double"]

Number = Any
"""A real number, infinity or NaN, in the representation of one arithmetic."""
Array = np.ndarray[Any, np.dtype[np.object_]]
"""An array of numbers."""

UNARY = (
    "neg abs square positive reciprocal floor ceil round trunc frac exp exp2 expm1 log log1p log2 log10 sqrt "
    "rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma sinc "
    "special_erfcx special_log_ndtr"
).split()
"""Functions of one number that every arithmetic has, by their names in aten."""
BINARY = "pow remainder fmod atan2 hypot".split()
"""Functions of two numbers that every arithmetic has, besides add, sub, mul and div."""
LARGEST_DOUBLE = float.fromhex("0x1.fffffffffffffp1023")
CHUNK = 64
"""Elements between two looks at the clock."""


class Undetermined(FuzzError):
    """An enclosure at this precision is too wide to decide a comparison, or whether a function is real there."""


def to_double(x: Number) -> float:
    """The nearest double of a finite number. What is not zero does not become zero, what is finite not infinite."""
    near = float(x)
    if near == 0 and x != 0:
        return math.copysign(5e-324, 1 if x > 0 else -1)
    return min(max(near, -LARGEST_DOUBLE), LARGEST_DOUBLE)


def object_array(values: Sequence[Any], shape: Sequence[int]) -> Array:
    """An array of these objects, whatever they are."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out.reshape(shape)


class RealArithmetic(ABC):
    """Real numbers in the precision in force, with infinities and NaN, until a deadline of `time.monotonic()`."""

    def __init__(self, deadline: float = math.inf) -> None:
        self.deadline = deadline

    functions: Mapping[str, Callable[..., Number]]
    """By name: add, sub, mul, div, `UNARY` and `BINARY`, for finite arguments."""

    @abstractmethod
    def precision(self, digits: int) -> AbstractContextManager[Any]:
        """A context in which results have this many decimal digits."""

    @abstractmethod
    def number(self, value: float) -> Number:
        """A double or an integer as the number that it is."""

    @abstractmethod
    def is_finite(self, x: Number) -> bool:
        """Whether a number is neither infinite nor NaN."""

    @abstractmethod
    def sign(self, x: Number) -> int:
        """-1, 0 or 1 for a finite number."""

    @abstractmethod
    def sum(self, terms: Sequence[Number]) -> Number:
        """The sum of numbers."""

    @abstractmethod
    def call_finite(self, name: str, *x: Number) -> Number | None:
        """A function of finite numbers; None where it is not real, so that torch answers."""

    @abstractmethod
    def call_torch(self, name: str, *x: Number) -> Number:
        """torch's answer for a function that is not real at x, or where x is not finite."""

    @abstractmethod
    def identity(self, x: Number) -> Any:
        """A key that is the same for two finite numbers only if they are known to be equal."""

    @abstractmethod
    def sort(self, numbers: Iterable[Number]) -> list[Number]:
        """Finite numbers in ascending order."""

    @abstractmethod
    def require_order(self, x: Number, others: Iterable[Number]) -> None:
        """Raise `Undetermined` unless the order of x and each other finite number is known."""

    def extreme(self, numbers: Sequence[Number], largest: bool) -> Number:
        """The largest or least of finite numbers, or what encloses it where their order is not known."""
        return max(numbers) if largest else min(numbers)

    @abstractmethod
    def to_integer(self, x: Number) -> int:
        """A finite number truncated."""

    @abstractmethod
    def to_exact_double(self, x: Number) -> float | None:
        """The double that a number is; None where it is none."""

    @cached_property
    def zero(self) -> Number:
        return self.number(0)

    @abstractmethod
    def pi(self) -> Number:
        """pi."""

    def autograd_constant(self, value: float) -> Number:
        """What a double stands for in autograd's formulas: an irrational constant of a derivative, or itself."""
        formula = AUTOGRAD_CONSTANTS.get(value)
        return self.number(value) if formula is None else formula(self)

    def call(self, name: str, *x: Number) -> Number:
        """A function by its name in aten."""
        if all(self.is_finite(one) for one in x):
            y = self.call_finite(name, *x)
            if y is not None:
                return y
        return self.call_torch(name, *x)

    def array(self, values: Any) -> Array:
        """An array of numbers from doubles and integers."""

        def number(value: Any) -> Number:
            return self.number(int(value) if isinstance(value, bool | int | np.integer | np.bool_) else float(value))

        objects = np.asarray(values, dtype=object)
        return object_array([number(value) for value in objects.reshape(-1).tolist()], objects.shape)

    def map(self, name: str, *arrays: Array) -> Array:
        """A function, element by element, over arrays that broadcast."""
        if any(a.shape != arrays[0].shape for a in arrays):
            arrays = tuple(np.broadcast_arrays(*arrays))
        lists, function, results = [a.reshape(-1).tolist() for a in arrays], self.bind(name), list[Number]()
        for start in range(0, arrays[0].size, CHUNK):
            self.check_deadline()
            results += map(function, *(numbers[start : start + CHUNK] for numbers in lists))
        return object_array(results, arrays[0].shape)

    def bind(self, name: str) -> Callable[..., Number]:
        """What `map` calls for each element."""
        return partial(self.call, name)

    def check_deadline(self) -> None:
        """Raise `Unadjudicated` when the time is spent."""
        if time.monotonic() > self.deadline:
            raise Unadjudicated("the time is spent")

    def total(self, x: Array, axes: Sequence[int], keepdim: bool = False) -> Array:
        """Sums over axes."""
        if not axes:
            return x.copy()
        kept = [d for d in range(x.ndim) if d not in axes]
        rows = x.transpose(*kept, *axes).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in axes))
        out = np.empty(rows.shape[:-1], dtype=object)
        for index in np.ndindex(*out.shape):
            self.check_deadline()
            out[index] = self.sum(rows[index].tolist())
        return out.reshape([1 if d in axes else n for d, n in enumerate(x.shape)]) if keepdim else out

    def matmul(self, a: Array, b: Array) -> Array:
        """Products (.., M, N) of matrices (.., M, K) and (.., K, N)."""
        products = self.map("mul", a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])
        return self.total(products, [products.ndim - 1])

    def rank(self, arrays: Sequence[Array]) -> tuple[list[torch.Tensor], list[Number]]:
        """(doubles in the order of the numbers, the numbers by rank). 0 is 0, infinities and NaN are themselves.

        The number of rank r stands at index r of the list: Python counts the negative ones from the end. Numbers whose
        order is not known have some order: see `require_order`.
        """
        distinct = {self.identity(self.zero): self.zero}
        for array in arrays:
            distinct |= {self.identity(x): x for x in array.reshape(-1).tolist() if self.is_finite(x)}
        ordered = self.sort(distinct.values())
        keys = [self.identity(x) for x in ordered]
        zero = keys.index(self.identity(self.zero))
        ranks = {key: float(place - zero) for place, key in enumerate(keys)}

        def rank(x: Number) -> float:
            return ranks[self.identity(x)] if self.is_finite(x) else float(x)

        tensors = [torch.tensor([rank(x) for x in a.reshape(-1).tolist()], dtype=torch.float64) for a in arrays]
        return [t.view(a.shape) for t, a in zip(tensors, arrays, strict=True)], [*ordered[zero:], *ordered[:zero]]


def _two_over_root_pi(arithmetic: RealArithmetic) -> Number:
    return arithmetic.call("div", arithmetic.number(2), arithmetic.call("sqrt", arithmetic.pi()))


AUTOGRAD_CONSTANTS: dict[float, Callable[[RealArithmetic], Number]] = {
    2 / math.sqrt(math.pi): _two_over_root_pi,
    -2 / math.sqrt(math.pi): lambda arithmetic: arithmetic.call("neg", _two_over_root_pi(arithmetic)),
    math.sqrt(math.pi) / 2: lambda arithmetic: arithmetic.call("reciprocal", _two_over_root_pi(arithmetic)),
    math.log(2): lambda arithmetic: arithmetic.call("log", arithmetic.number(2)),
    math.log(10): lambda arithmetic: arithmetic.call("log", arithmetic.number(10)),
    # torch writes log(10) with its last digit wrong.
    2.3025850929940456: lambda arithmetic: arithmetic.call("log", arithmetic.number(10)),
}
"""Irrational constants in the derivatives that torch's autograd knows: erf, erfinv, exp2, log2, log10."""
