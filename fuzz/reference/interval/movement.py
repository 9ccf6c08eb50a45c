"""Defines rules of data movement, which is the same for midpoints and radii, of casts, and of new tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import aten, handles_plain
from fuzz.reference.exact.rules.movement import CREATING, MOVED, MOVING, written
from fuzz.reference.interval.rules import require
from fuzz.reference.interval.tensor import RULES, IntervalMode, IntervalTensor, Pair, keeps_format, make_tensor

__all__ = ["register"]

UNROUNDED = 0.0, 1.0, -1.0, math.inf, -math.inf
"""Numbers that every format holds."""
IGNORED = ("dtype", "layout", "pin_memory", "non_blocking", "device")


@keeps_format
def move(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's operation on the midpoints, and on the radii. What scalars bring in is exact."""
    kwargs = {name: value for name, value in kwargs.items() if name not in IGNORED}
    given = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
    mids, radii = (
        func(**{name: take_part(mode, x, part, name in MOVED) for name, x in given.items()}) for part in (0, 1)
    )
    kind = common_dtype(mode, [x for name, x in given.items() if name in MOVED or type(x) is IntervalTensor])
    if isinstance(mids, Tensor):
        return make_tensor(Pair(mids, radii), kind)
    return [make_tensor(Pair(*pair), kind) for pair in zip(mids, radii, strict=True)]


def common_dtype(mode: IntervalMode, moved: list[Any]) -> torch.dtype:
    """The dtype of what is moved together. Raises `Unadjudicated` for numbers that a narrower one may round."""
    parts = [part for one in moved for part in (one if isinstance(one, list | tuple) else [one])]
    tensors = [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]
    decisive = [part for part in tensors if part.dim()] or tensors
    kinds = {part.dtype for part in decisive}
    if torch.float64 in kinds or not kinds:
        return torch.float64
    scalars = [part for part in parts if isinstance(part, float)]
    scalars += [float(mode.pair(part).mid) for part in tensors if not part.dim() and part.dtype not in kinds]
    if len(kinds) > 1 or any(scalar not in UNROUNDED for scalar in scalars):
        raise Unadjudicated(f"the reference brings numbers into a tensor of {', '.join(map(str, kinds))}, which rounds")
    return kinds.pop()


def take_part(mode: IntervalMode, x: Any, part: int, moves: bool) -> Any:
    """The midpoints (part 0) or radii (part 1) of an argument; masks, indices and sizes as they are."""
    if isinstance(x, list | tuple) and any(type(one) is IntervalTensor for one in x):
        return [take_part(mode, one, part, True) for one in x]
    if type(x) is IntervalTensor or moves and isinstance(x, Tensor):
        return mode.pair(x)[part]
    return 0.0 if moves and part and isinstance(x, int | float) else x


@keeps_format
def cast(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """_to_copy: a cast to a narrower format rounds both ends, integers and bools have to be certain."""
    x, kind = mode.pair(args[0]), kwargs.get("dtype") or args[0].dtype
    if not kind.is_floating_point and not args[0].is_floating_point():
        return func(*args, **kwargs)
    if kind is torch.float64:
        return make_tensor(Pair(x.mid.clone(), x.radius.clone()))
    low, high = ((x.mid + sign * x.radius).to(kind) for sign in (-1, 1))
    if not kind.is_floating_point:
        require(low == high)
        return low
    low, high = low.double(), high.double()
    return make_tensor(Pair((low + high) / 2, torch.where(low == high, 0.0, (high - low) / 2)), kind)


@keeps_format
def copy_(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy_, fill_, zero_."""
    return mode.write(func, args[0], args[1] if len(args) > 1 else 0)


@handles_plain
@keeps_format
def create(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros, full, arange, zeros_like, ...: floating ones are intervals, because the reference may write there."""
    shapes = (torch.zeros_like(a.mid, dtype=a.dtype) if type(a) is IntervalTensor else a for a in args)
    real = func(*shapes, **kwargs)
    if not real.is_floating_point():
        return real
    return make_tensor(mode.pair(written(func, real)), real.dtype)


@handles_plain
@keeps_format
def convert_constant(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """lift_fresh, clone, ... of a plain tensor: its doubles."""
    if isinstance(args[0], Tensor) and args[0].is_floating_point() and type(args[0]) is not IntervalTensor:
        return make_tensor(mode.pair(func(*args, **kwargs)), args[0].dtype)
    return move(mode, func, args, kwargs) if type(args[0]) is IntervalTensor else func(*args, **kwargs)


def register() -> None:
    """State the rules of this module."""
    RULES.register(convert_constant, "lift_fresh", "lift", "detach", "alias", "clone")
    RULES.register(cast, "_to_copy")
    RULES.register(move, *MOVING.split())
    RULES.register(create, *CREATING.split())
    RULES.update({aten.copy_.default: copy_, aten.zero_.default: copy_})
    RULES.update({aten.fill_.Scalar: copy_, aten.fill_.Tensor: copy_})
