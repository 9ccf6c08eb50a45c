"""Defines rules of data movement, by torch itself on the positions of numbers; sums at indices; creation of tensors."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import aten, handles_plain
from fuzz.reference.exact.arithmetic import Array, Number
from fuzz.reference.exact.rules.ordering import find_extreme
from fuzz.reference.exact.tensor import RULES, ExactMode, ExactTensor, from_array, make_view

__all__ = ["CREATING", "MOVED", "MOVING", "register", "written"]

MOVING = (
    "detach alias lift_fresh lift clone _to_copy contiguous view.default _unsafe_view _reshape_copy view_copy "
    "_reshape_alias expand expand_copy repeat as_strided as_strided_copy permute permute_copy t transpose.int squeeze "
    "unsqueeze diagonal diagonal_copy diag_embed roll cat stack select.int slice.Tensor flip unfold select_copy split "
    "split_with_sizes split_with_sizes_copy split_copy unbind unbind_copy select_scatter slice_scatter "
    "diagonal_scatter select_backward slice_backward diagonal_backward tril triu constant_pad_nd reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d pixel_shuffle pixel_unshuffle channel_shuffle rot90 "
    "copy fill zero index.Tensor _unsafe_index.Tensor gather index_select embedding masked_select masked_scatter take "
    "where scatter.src scatter.value index_copy index_fill masked_fill narrow_copy fill.Tensor"
)
MOVING_FLOATS = (
    "im2col upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d"
)
"""Movements that torch implements for floating numbers alone; which pixels are nearest is torch's own choice."""
ADJOINT = (
    "reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward col2im"
)
CREATING = (
    "zeros ones empty.memory_format full arange eye scalar_tensor zeros_like ones_like empty_like full_like new_zeros "
    "new_ones new_empty new_full new_empty_strided empty_strided _efficientzerotensor"
)
ZEROS = aten._efficientzerotensor.default
"""Zeros that have no memory, the gradient of a sign."""
MOVED = ("self", "other", "src", "source", "value", "values", "tensors", "fill_value")
"""Arguments of these whose numbers are moved; the others are masks, indices and sizes."""


def move(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's operation on positions among all numbers that come in; position 0 holds the zero that padding brings."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "layout", "pin_memory", "non_blocking", "device")}
    given = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
    if func._schema.returns[0].alias_info is not None:
        return _view(func, given)
    pool = [np.array([mode.arithmetic.zero], dtype=object)]
    out = func(**{name: _to_positions(mode, x, pool, name in MOVED) for name, x in given.items()})
    numbers = np.concatenate(pool)
    if isinstance(out, Tensor):
        return _gather(numbers, out)
    return tuple(_gather(numbers, t) for t in out)


def move_floats(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same of the first argument alone, on positions as float64, which holds each of them."""
    pool = [np.array([mode.arithmetic.zero], dtype=object)]
    positions = _to_positions(mode, args[0], pool, True).double()
    return _gather(np.concatenate(pool), func(positions, *args[1:], **kwargs).long())


def _view(func: OpOverload, given: dict[str, Any]) -> Any:
    """The same view of the positions, over the same numbers."""
    x = given["self"]
    out = func(**{**given, "self": x.positions})
    return make_view(x.numbers, out) if isinstance(out, Tensor) else [make_view(x.numbers, t) for t in out]


def _to_positions(mode: ExactMode, x: Any, pool: list[Array], moves: bool) -> Any:
    """An argument with its numbers, which are added to the pool, replaced by their positions there."""
    if isinstance(x, list | tuple) and any(type(part) is ExactTensor for part in x):
        return [_to_positions(mode, part, pool, True) for part in x]
    if not moves and type(x) is not ExactTensor or isinstance(x, list | tuple) or x is None:
        return x
    start = sum(len(part) for part in pool)
    values = mode.array(x)
    pool.append(values.reshape(-1))
    positions = torch.arange(start, start + values.size).view(values.shape)
    return positions if isinstance(x, Tensor) else start


def _gather(numbers: Array, positions: Tensor) -> ExactTensor:
    """A new tensor of the numbers at these positions."""
    return from_array(numbers[positions.reshape(-1).numpy()].reshape(positions.shape))


def cast(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """_to_copy: integers become exact numbers, and the other way round; narrower floats would round."""
    dtype = kwargs.get("dtype") or args[0].dtype
    if dtype is torch.float64:
        return move(mode, aten.clone.default, (from_array(mode.array(args[0])),), {})
    if dtype.is_floating_point or dtype.is_complex:
        raise Unadjudicated(f"{func}: the reference casts to {dtype}")
    if dtype is torch.bool:
        with mode:
            return args[0] != 0
    arithmetic = mode.arithmetic
    numbers = mode.array(args[0]).reshape(-1).tolist()
    integers = [arithmetic.to_integer(x) if arithmetic.is_finite(x) else 0 for x in numbers]
    return torch.tensor(integers, dtype=torch.int64).view(args[0].shape).to(dtype)


def copy_(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy_, fill_, zero_."""
    return mode.write(func, args[0], args[1] if len(args) > 1 else 0)


@handles_plain
def create(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros, full, arange, zeros_like, ...: floating ones are exact tensors, because the reference may write there."""
    real = func(*(zeros_like(a) if type(a) is ExactTensor else a for a in args), **kwargs)
    if not real.is_floating_point():
        return real
    return mode.allocate(written(func, real))


def written(func: OpOverload, real: Tensor) -> Tensor:
    """What a factory makes, with zeros in the place of memory that is not written."""
    return (
        torch.zeros(real.shape, dtype=real.dtype) if func is ZEROS else real.zero_() if "empty" in str(func) else real
    )


def zeros_like(x: ExactTensor) -> Tensor:
    """A plain tensor of the same shape and strides, zeros."""
    return torch.zeros_like(x.positions, dtype=torch.float64)


@handles_plain
def linspace(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """start + i*(end - start)/(steps - 1)."""
    arithmetic = mode.arithmetic
    start, end = mode.array(args[0]), mode.array(args[1])
    parts = arithmetic.map("mul", arithmetic.array(list(range(args[2]))), arithmetic.map("sub", end, start))
    return from_array(arithmetic.map("add", start, arithmetic.map("div", parts, arithmetic.array(max(args[2] - 1, 1)))))


@handles_plain
def convert_constant(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """lift_fresh, clone, ... of a plain tensor: its doubles."""
    if isinstance(args[0], Tensor) and args[0].is_floating_point() and type(args[0]) is not ExactTensor:
        return mode.allocate(func(*args, **kwargs))
    return move(mode, func, args, kwargs) if type(args[0]) is ExactTensor else func(*args, **kwargs)


def _sources(mode: ExactMode, func: OpOverload, args: tuple[Any, ...]) -> tuple[list[int], list[Number]]:
    """(where each source goes in the first argument, flattened; the sources) of an operation that writes at indices."""
    x = args[0]
    positions = torch.arange(x.numel()).view(x.shape)
    name = func._schema.name.split("::")[1]
    if name in ("index_put", "_unsafe_index_put"):
        to = aten.index.Tensor(positions, list(args[1]))
        source = np.broadcast_to(mode.array(args[2]), tuple(to.shape))
    else:
        source = mode.array(args[3])
        if name == "index_add":
            to = positions.index_select(args[1], args[2])
        else:
            to = positions.gather(args[1], args[2])
            source = source[tuple(slice(n) for n in args[2].shape)] if source.ndim else source
    return to.reshape(-1).tolist(), source.reshape(-1).tolist()


def accumulate(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_add, scatter_add, index_put: sources replace what is there, or are added to it."""
    adds = func._schema.name not in ("aten::index_put", "aten::_unsafe_index_put") or (len(args) > 3 and args[3])
    call, scale = mode.arithmetic.call, mode.arithmetic.number(kwargs.get("alpha", 1))
    out = mode.array(args[0]).copy().reshape(-1)
    for place, value in zip(*_sources(mode, func, args), strict=True):
        out[place] = call("add", out[place], call("mul", value, scale)) if adds else value
    return from_array(out.reshape(args[0].shape))


def scatter_reduce(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_reduce(x, dim, index, source, reduce, *, include_self)."""
    out = mode.array(args[0]).copy().reshape(-1)
    groups: dict[int, list[Any]] = {}
    for place, value in zip(*_sources(mode, func, args), strict=True):
        groups.setdefault(place, [out[place]] if kwargs.get("include_self", True) else []).append(value)
    for place, values in groups.items():
        out[place] = _reduce(mode, args[4], values)
    return from_array(out.reshape(args[0].shape))


def _reduce(mode: ExactMode, name: str, values: list[Number]) -> Number:
    """sum, mean, prod, amax or amin of some numbers."""
    arithmetic = mode.arithmetic
    if name in ("amax", "amin"):
        return find_extreme(mode, values, name == "amax")
    if name == "prod":
        return reduce(lambda x, y: arithmetic.call("mul", x, y), values)
    total = arithmetic.sum(values)
    return total if name == "sum" else arithmetic.call("div", total, arithmetic.number(len(values)))


def transpose(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients of pads: sums of gradients, read off torch's own operation on one unit vector after another."""
    g, rest = args[0], [zeros_like(a) if type(a) is ExactTensor else a for a in args[1:]]
    units = torch.eye(g.numel(), dtype=torch.float64)
    columns = torch.stack([func(unit.view(g.shape), *rest, **kwargs) for unit in units])
    arithmetic = mode.arithmetic
    terms = arithmetic.map("mul", mode.array(g).reshape(-1, 1), arithmetic.array(columns.flatten(1).tolist()))
    return from_array(arithmetic.total(terms, [0]).reshape(columns.shape[1:]))


def register() -> None:
    """State the rules of this module."""
    RULES.register(transpose, *ADJOINT.split())
    RULES.register(convert_constant, "lift_fresh", "lift", "detach", "alias", "clone")
    RULES.register(cast, "_to_copy")
    RULES.register(move, *MOVING.split())
    RULES.register(move_floats, *MOVING_FLOATS.split())
    RULES.register(
        accumulate, "index_add.default", "scatter_add.default", "index_put.default", "_unsafe_index_put.default"
    )
    RULES.register(scatter_reduce, "scatter_reduce.two")
    RULES.register(linspace, "linspace.default")
    RULES.register(create, *CREATING.split())
    RULES.update({aten.copy_.default: copy_, aten.zero_.default: copy_})
    RULES.update({aten.fill_.Scalar: copy_, aten.fill_.Tensor: copy_})
