"""Defines rules of operations that only look at the order of numbers, equality and zero: torch's own, on ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.exact.arithmetic import Array, Number, Undetermined, object_array
from fuzz.reference.exact.tensor import RULES, ExactMode, from_array

__all__ = ["find_extreme", "register"]

ELEMENTWISE = (
    "relu clamp clamp_min clamp_max maximum minimum fmax fmin eq ne lt le gt ge isnan isinf isposinf isneginf isfinite "
    "threshold hardtanh logical_and logical_or logical_not logical_xor any all count_nonzero nonzero"
)
EXTREMES = "amax amin aminmax max min argmax argmin"
SORTED = (
    "sort topk argsort kthvalue median nanmedian mode cummax cummin msort equal isin searchsorted bucketize"
)  # fmt: skip
WITH_ZERO = (
    "relu logical_and logical_or logical_not logical_xor any all count_nonzero nonzero isnan isinf isposinf isneginf "
    "isfinite"
).split()
"""Operations that compare each number with zero only, or with nothing."""
VALUES = "amax amin".split()
"""Operations that give an extreme value, and not where it is: balls that overlap enclose it."""
LIMITS = ("other", "min", "max", "min_val", "max_val", "threshold", "value")
"""Their arguments that may be scalars to compare with."""


def compare(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's own operation on ranks: ties, NaN and the choice of an index are as torch has them."""
    schema = func._schema.arguments
    given = {a.name: a.default_value for a in schema if a.name in (*LIMITS, "dim") and a.has_default_value()}
    given |= {**dict(zip([a.name for a in schema], args, strict=False)), **kwargs}
    arrays = {
        name: mode.array(x) for name, x in given.items()
        if isinstance(x, Tensor) and x.dtype is not torch.bool or name in LIMITS and isinstance(x, int | float)
    }  # fmt: skip
    name = func._schema.name.split("::")[1]
    try:
        _require_order(mode, name, arrays, given.get("dim"))
    except Undetermined:
        if name not in VALUES:
            raise
        arrays = {"self": _join_extremes(mode, arrays["self"], given["dim"], name == "amax")}
    tensors, numbers = mode.arithmetic.rank(list(arrays.values()))
    for name, rank in zip(arrays, tensors, strict=True):
        given[name] = rank if isinstance(given[name], Tensor) else rank.item()
    out = func(**given)
    if isinstance(out, Tensor):
        return _from_ranks(mode, out, numbers)
    return tuple(_from_ranks(mode, t, numbers) for t in out) if isinstance(out, tuple | list) else out


def _join_extremes(mode: ExactMode, array: Array, dim: Any, largest: bool) -> Array:
    """The array with one number for all that may be the extreme of a row, which encloses it."""
    arithmetic, joined = mode.arithmetic, array.reshape(-1).copy()
    for places in _rows([np.arange(array.size, dtype=object).reshape(array.shape)], dim):
        finite = [place for place in places if arithmetic.is_finite(joined[place])]
        extreme = arithmetic.extreme([joined[place] for place in finite], largest) if finite else None
        for place in finite:
            x = joined[place]
            if not (x < extreme if largest else x > extreme):
                joined[place] = extreme
    return joined.reshape(array.shape)


def _from_ranks(mode: ExactMode, t: Tensor, numbers: Sequence[Number]) -> Any:
    """The numbers of ranks; decisions and indices as they are."""
    if not t.is_floating_point():
        return t
    flat = [numbers[int(r)] if abs(r) < float("inf") else mode.arithmetic.number(r) for r in t.reshape(-1).tolist()]
    return from_array(object_array(flat, t.shape))


def _require_order(mode: ExactMode, name: str, arrays: Mapping[str, Array], dim: Any) -> None:
    """Raise `Undetermined` where the operation compares numbers whose order is not known."""
    arithmetic = mode.arithmetic
    compared = [array for argument, array in arrays.items() if argument != "value"]
    if name in WITH_ZERO:
        for x in (x for array in compared for x in array.reshape(-1).tolist() if arithmetic.is_finite(x)):
            arithmetic.require_order(x, [arithmetic.zero])
    elif name in ELEMENTWISE.split() or name in EXTREMES.split() and len(compared) > 1:
        for x, *others in zip(*(a.reshape(-1).tolist() for a in np.broadcast_arrays(*compared)), strict=True):
            if arithmetic.is_finite(x):
                arithmetic.require_order(x, filter(arithmetic.is_finite, others))
    else:
        for row in _rows(compared, dim):
            ordered = arithmetic.sort({arithmetic.identity(x): x for x in row if arithmetic.is_finite(x)}.values())
            if name in EXTREMES.split():
                for extreme in {0, len(ordered) - 1} if ordered else ():
                    arithmetic.require_order(ordered[extreme], ordered)
            else:
                for x, y in zip(ordered, ordered[1:], strict=False):
                    arithmetic.require_order(x, [y])


def _rows(arrays: Sequence[Array], dim: Any) -> Iterator[list[Number]]:
    """The numbers that an operation along dims compares with each other; all of them where it has no dims."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if len(arrays) > 1 or not dims or not arrays[0].ndim:
        yield [x for array in arrays for x in array.reshape(-1).tolist()]
        return
    array = np.moveaxis(arrays[0], dims, range(len(dims)))
    lined, rows = (int(np.prod(part)) for part in (array.shape[: len(dims)], array.shape[len(dims) :]))
    yield from array.reshape(lined, rows).T.tolist()


def find_extreme(mode: ExactMode, values: Sequence[Number], largest: bool) -> Number:
    """The largest or least number; NaN where there is one."""
    arithmetic = mode.arithmetic
    infinite = [x for x in values if not arithmetic.is_finite(x)]
    finite = arithmetic.sort([x for x in values if arithmetic.is_finite(x)])
    if any(x != x for x in infinite):
        return arithmetic.number(float("nan"))
    if any((x > 0) == largest for x in infinite) or not finite:
        return max(infinite) if largest else min(infinite)
    extreme = finite[-1 if largest else 0]
    arithmetic.require_order(extreme, finite)
    return extreme


def register() -> None:
    """State the rules of this module."""
    RULES.register(compare, *ELEMENTWISE.split(), *EXTREMES.split(), *SORTED.split())
