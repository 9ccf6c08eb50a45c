"""Elementwise operations: arithmetic and functions by mpmath; orderings by torch on the numbers' ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mpmath import mp
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.exact.numbers import BINARY, UNARY, Cells, Number, cells, divide, guarded, trunc
from fuzz.reference.exact.rules.table import aten, put
from fuzz.reference.exact.tensor import Exact, ExactMode, numbers, wrap

__all__ = ["added", "each", "register", "totals"]

ORDERED = (
    "relu clamp clamp_min clamp_max maximum minimum fmax fmin eq ne lt le gt ge isnan isinf isposinf isneginf "
    "isfinite threshold hardtanh amax amin aminmax max min argmax argmin sort topk argsort kthvalue median nanmedian "
    "mode cummax cummin msort count_nonzero nonzero logical_and logical_or logical_not logical_xor any all equal isin "
    "searchsorted bucketize"
)
"""Operations that only look at the order of numbers, at their equality and at zero."""
LIMITS = ("other", "min", "max", "min_val", "max_val", "threshold", "value")
"""Their arguments that may be scalars to compare with."""


def each(function: Callable[..., Number], *arrays: Cells) -> Cells:
    """A function of numbers, element by element, over arrays that broadcast."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


def _mag(x: Number) -> int | None:
    """Exponent of a number's leading bit; None for zero and what is not finite."""
    _, man, exponent, bits = x._mpf_
    return exponent + bits if man else None


def _lost(mode: ExactMode, total: Number, terms: Sequence[Number]) -> None:
    """Notes where a sum has less than half of the precision left."""
    size = max((m for m in map(_mag, terms) if m is not None), default=None)
    if size is None or not mp.isfinite(total):
        return
    left = _mag(total)
    if left is None or left < size - mp.prec // 2:
        mode.cancelled = True


def added(mode: ExactMode, x: Cells, y: Cells) -> Cells:
    """x + y."""

    def add(a: Number, b: Number) -> Number:
        total = a + b
        _lost(mode, total, (a, b))
        return total

    return each(add, x, y)


def totals(mode: ExactMode, x: Cells, axes: Sequence[int], keepdim: bool) -> Cells:
    """Sums over axes."""
    if not axes:
        return x.copy()
    kept = [d for d in range(x.ndim) if d not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[d] for d in kept), -1)
    out = np.empty(rows.shape[:-1], dtype=object)
    for place in np.ndindex(*out.shape):
        terms = rows[place].tolist() if rows.ndim > 1 else rows.tolist()
        out[place] = mp.fsum(terms)
        _lost(mode, out[place], terms)
    return out.reshape([1 if d in axes else n for d, n in enumerate(x.shape)]) if keepdim else out


def additive(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """add, sub, rsub with their alpha."""
    x, y = numbers(args[0]), numbers(args[1])
    alpha = numbers(kwargs.get("alpha", args[2] if len(args) > 2 else 1))
    name = func._schema.name.split("::")[1]
    if name == "rsub":
        x, y = y, x
    scaled = y if alpha.item() == 1 else each(lambda a, b: a * b, y, alpha)
    return wrap(added(mode, x, scaled if name == "add" else each(lambda a: -a, scaled)))


def multiply(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mul."""
    return wrap(each(lambda a, b: a * b, numbers(args[0]), numbers(args[1])))


def division(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """div with its rounding mode, floor_divide."""
    rounding_mode = "floor" if func is aten.floor_divide.default else kwargs.get("rounding_mode")
    quotient = each(guarded(divide, torch.div), numbers(args[0]), numbers(args[1]))
    if rounding_mode is None:
        return wrap(quotient)
    return wrap(each(guarded(mp.floor if rounding_mode == "floor" else trunc, lambda x: x), quotient))


def function(name: str, of: Callable[..., Number]) -> Any:
    """Rule of a function of one or two numbers. Its overloads take tensors and scalars alike."""

    def rule(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != len(arguments):
            raise Unadjudicated(f"{func}: no rule for its other arguments")
        return wrap(each(guarded(of, getattr(aten, name)), *map(numbers, args)))

    arguments = (0,) if name in UNARY else (0, 1)
    return rule


def sign(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sign, sgn and signbit, which takes every zero as positive."""
    signs = torch.sign(ranks([numbers(args[0])])[0][0])
    return signs < 0 if func is aten.signbit.default else wrap(cells(signs.tolist()).reshape(signs.shape))


def ranks(arrays: Sequence[Cells]) -> tuple[list[Tensor], list[Number]]:
    """(doubles in the order of the numbers, the numbers by rank): 0 stands for 0, infinities and NaN for themselves."""
    finite = {x for array in arrays for x in array.reshape(-1).tolist() if mp.isfinite(x)}
    ordered = sorted(finite | {mp.zero})
    zero = ordered.index(mp.zero)
    rank = {x: float(place - zero) for place, x in enumerate(ordered)}
    made = [
        torch.tensor([rank[x] if mp.isfinite(x) else float(x) for x in a.reshape(-1).tolist()], dtype=torch.float64)
        for a in arrays
    ]
    # Number of rank r stands at place r: Python counts the negative ones from the end.
    return [t.view(a.shape) for t, a in zip(made, arrays, strict=True)], [*ordered[zero:], *ordered[:zero]]


def ordering(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's own operation on ranks: ties, NaN and the choice of an index are as torch has them."""
    schema = func._schema.arguments
    given = {a.name: a.default_value for a in schema if a.name in LIMITS and a.has_default_value()}
    given |= {**dict(zip([a.name for a in schema], args, strict=False)), **kwargs}
    compared = [
        name for name, x in given.items()
        if isinstance(x, Tensor) and x.dtype is not torch.bool or name in LIMITS and isinstance(x, int | float)
    ]  # fmt: skip
    placed, known = ranks([numbers(given[name]) for name in compared])
    for name, rank in zip(compared, placed, strict=True):
        given[name] = rank if isinstance(given[name], Tensor) else rank.item()
    out = func(**given)
    if isinstance(out, Tensor):
        return _ranked(out, known)
    return tuple(_ranked(t, known) for t in out) if isinstance(out, tuple | list) else out


def _ranked(t: Tensor, known: Sequence[Number]) -> Any:
    """The numbers of ranks; decisions and indices as they are."""
    if not t.is_floating_point():
        return t
    flat = [known[int(r)] if abs(r) < float("inf") else cells(r).item() for r in t.reshape(-1).tolist()]
    return wrap(np.array([*flat, None], dtype=object)[:-1].reshape(t.shape))


def kept(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """threshold_backward(g, x, threshold), hardtanh_backward(g, x, low, high): the gradient inside, 0 elsewhere."""
    g, x = args[:2]
    with mode:
        inside = ~(x <= args[2]) if len(args) == 3 else (x > args[2]) & (x < args[3])
        return torch.where(inside, g, 0.0)


def nan_to_num(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NaN and infinities replaced."""
    given = [*args[1:], *(kwargs.get(n) for n in ("nan", "posinf", "neginf")[len(args) - 1 :])]
    largest = torch.finfo(torch.float64).max
    values = [d if v is None else v for v, d in zip(given, (0.0, largest, -largest), strict=True)]
    nan, positive, negative = cells(values).tolist()

    def replaced(x: Number) -> Number:
        return x if mp.isfinite(x) else nan if x != x else positive if x > 0 else negative

    return wrap(each(replaced, numbers(args[0])))


def copysign(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """|x| with the sign of y; a zero is positive."""
    return wrap(each(lambda x, y: -abs(x) if y < 0 else abs(x), numbers(args[0]), numbers(args[1])))


def item(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`: only of a number that a double holds; another would be rounded."""
    x = numbers(args[0]).item() if type(args[0]) is Exact else None
    if x is None:
        return func(*args, **kwargs)
    if mp.isfinite(x) and x != float(x):
        raise Unadjudicated("the reference takes a number out of a tensor (.item()), which rounds it")
    return float(x)


def register() -> None:
    """State the rules of this module."""
    put(additive, "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
    put(multiply, "mul.Tensor", "mul.Scalar")
    put(division, "div", "floor_divide", "true_divide")
    put(sign, "sign", "sgn", "signbit")
    for name, of in (UNARY | BINARY).items():
        put(function(name, of), name)
    put(ordering, *ORDERED.split())
    put(kept, "threshold_backward", "hardtanh_backward")
    put(nan_to_num, "nan_to_num")
    put(copysign, "copysign.Tensor", "copysign.Scalar")
    put(item, "_local_scalar_dense", "item")
