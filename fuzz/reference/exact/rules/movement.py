"""Data movement, done by torch itself on the places of numbers; adding at indices; tensors made from nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mpmath import mp
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.exact.numbers import Cells, cells
from fuzz.reference.exact.rules.elementwise import added, each, totals
from fuzz.reference.exact.rules.table import RULES, aten, creates, put, write
from fuzz.reference.exact.tensor import Exact, ExactMode, allocated, numbers, view_of, wrap

__all__ = ["register"]

MOVING = (
    "detach alias lift_fresh lift clone _to_copy contiguous view.default _unsafe_view _reshape_copy view_copy "
    "_reshape_alias expand expand_copy repeat as_strided as_strided_copy permute permute_copy t transpose.int squeeze "
    "unsqueeze diagonal diagonal_copy diag_embed roll cat stack select.int slice.Tensor flip unfold select_copy split "
    "split_with_sizes split_with_sizes_copy split_copy unbind unbind_copy select_scatter slice_scatter "
    "diagonal_scatter select_backward slice_backward diagonal_backward tril triu constant_pad_nd reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d im2col pixel_shuffle pixel_unshuffle channel_shuffle rot90 "
    "copy fill zero index.Tensor _unsafe_index.Tensor gather index_select embedding masked_select masked_scatter take "
    "where scatter.src scatter.value index_copy index_fill masked_fill narrow_copy fill.Tensor"
)
ADJOINT = (
    "reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward col2im"
)
HELD = ("self", "other", "src", "source", "value", "values", "tensors", "fill_value")
"""Arguments of these whose numbers are moved; the others are masks, indices and sizes."""


def moved(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's operation on places among all numbers that come in; place 0 holds the zero that padding brings."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "layout", "pin_memory", "non_blocking", "device")}
    given = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
    if func._schema.returns[0].alias_info is not None:
        return _views(func, given)
    pool: list[Cells] = [cells([0])]
    out = func(**{name: _located(x, pool, name in HELD) for name, x in given.items()})
    if not isinstance(out, Tensor):
        return tuple(_gathered(t, pool) for t in out)
    return _gathered(out, pool)


def _views(func: OpOverload, given: dict[str, Any]) -> Any:
    """The same view of the places, over the same cells."""
    x = given["self"]
    out = func(**{**given, "self": x.places})
    return view_of(x.cells, out) if isinstance(out, Tensor) else [view_of(x.cells, t) for t in out]


def _located(x: Any, pool: list[Cells], held: bool) -> Any:
    """An argument with numbers replaced by their places in the pool."""
    if isinstance(x, list | tuple) and any(type(one) is Exact for one in x):
        return [_located(one, pool, True) for one in x]
    if not held and type(x) is not Exact or isinstance(x, list | tuple) or x is None:
        return x
    start = sum(len(part) for part in pool)
    values = numbers(x)
    pool.append(values.reshape(-1))
    places = torch.arange(start, start + values.size).view(values.shape)
    return places if isinstance(x, Tensor) else start


def _gathered(places: Tensor, pool: list[Cells]) -> Exact:
    """A new tensor of the numbers at these places, with their strides."""
    store = np.concatenate(pool)
    flat = store[places.reshape(-1).numpy()]
    out = wrap(flat.reshape(places.shape))
    return out


def copied(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """_to_copy: whole numbers become exact ones, and the other way round; narrower floats would round."""
    dtype = kwargs.get("dtype") or args[0].dtype
    if dtype is torch.float64:
        return moved(mode, aten.clone.default, (wrap(numbers(args[0])),), {})
    if dtype.is_floating_point or dtype.is_complex:
        raise Unadjudicated(f"{func}: the reference casts to {dtype}")
    if dtype is torch.bool:
        return args[0] != 0
    whole = [int(x) if mp.isfinite(x) else 0 for x in numbers(args[0]).reshape(-1).tolist()]
    return torch.tensor(whole, dtype=torch.int64).view(args[0].shape).to(dtype)


def copy_(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy_, fill_, zero_: written into the cells."""
    return write(args[0], args[1] if len(args) > 1 else 0, func)


@creates
def made(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros, full, arange, zeros_like, ...: floating ones are exact tensors, because the reference may write there."""
    like = [zeros(a) if type(a) is Exact else a for a in args]
    real = func(*like, **kwargs)
    if not real.is_floating_point():
        return real
    return allocated(real.zero_() if "empty" in func._schema.name else real)


def zeros(x: Exact) -> Tensor:
    """A plain tensor of the same shape and strides, zeros."""
    return torch.zeros_like(x.places, dtype=torch.float64)


@creates
def linspace(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """start + i*(end - start)/(steps - 1)."""
    start, end = (numbers(a).item() for a in args[:2])
    last = max(args[2] - 1, 1)
    return wrap(cells([start + i * (end - start) / last for i in range(args[2])]))


@creates
def constant(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """lift_fresh, clone, ... of a plain tensor: its doubles."""
    if isinstance(args[0], Tensor) and args[0].is_floating_point() and type(args[0]) is not Exact:
        return allocated(func(*args, **kwargs))
    return moved(mode, func, args, kwargs) if type(args[0]) is Exact else func(*args, **kwargs)


def _sources(func: OpOverload, args: tuple[Any, ...]) -> tuple[Tensor, Cells]:
    """(where each source goes in the first argument, flattened; the sources) of an operation that writes at indices."""
    x = args[0]
    places = torch.arange(x.numel()).view(x.shape)
    name = func._schema.name.split("::")[1]
    if name in ("index_put", "_unsafe_index_put"):
        to = aten.index.Tensor(places, list(args[1]))
        return to, np.broadcast_to(numbers(args[2]), tuple(to.shape))
    source = numbers(args[3])
    if name == "index_add":
        return places.index_select(args[1], args[2]), source
    return places.gather(args[1], args[2]), source[tuple(slice(n) for n in args[2].shape)]


def accumulated(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_add, scatter_add, index_put: sources replace what is there, or are added to it."""
    to, source = _sources(func, args)
    adds = func._schema.name not in ("aten::index_put", "aten::_unsafe_index_put") or (len(args) > 3 and args[3])
    scale = cells(kwargs.get("alpha", 1)).item()
    out = numbers(args[0]).copy().reshape(-1)
    for place, value in zip(to.reshape(-1).tolist(), source.reshape(-1).tolist(), strict=True):
        out[place] = added(mode, out[place], value * scale).item() if adds else value
    return wrap(out.reshape(args[0].shape))


def scatter_reduce(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_reduce(x, dim, index, source, reduce, *, include_self)."""
    to, source = _sources(func, args)
    out = numbers(args[0]).copy().reshape(-1)
    groups: dict[int, list[Any]] = {}
    for place, value in zip(to.reshape(-1).tolist(), source.reshape(-1).tolist(), strict=True):
        groups.setdefault(place, [out[place]] if kwargs.get("include_self", True) else []).append(value)
    for place, values in groups.items():
        out[place] = REDUCED[args[4]](values)
    return wrap(out.reshape(args[0].shape))


REDUCED: dict[str, Callable[[list[Any]], Any]] = {
    "sum": mp.fsum,
    "prod": mp.fprod,
    "mean": lambda values: mp.fsum(values) / len(values),
    "amax": lambda values: numbers(_extreme(values, torch.amax)).item(),
    "amin": lambda values: numbers(_extreme(values, torch.amin)).item(),
}


def _extreme(values: list[Any], function: Callable[[Tensor], Tensor]) -> Any:
    """The largest or least number; NaN where there is one."""
    if any(x != x for x in values):
        return float("nan")
    return max(values) if function is torch.amax else min(values)


def adjoint(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients of pads: sums of gradients, read off torch's own operation on one unit vector after another."""
    g, rest = args[0], [zeros(a) if type(a) is Exact else a for a in args[1:]]
    units = torch.eye(g.numel(), dtype=torch.float64)
    columns = torch.stack([func(unit.view(g.shape), *rest, **kwargs) for unit in units])
    terms = each(lambda x, c: x * c, numbers(g).reshape(-1, 1), cells(columns.flatten(1).tolist()))
    return wrap(totals(mode, terms, [0], False).reshape(columns.shape[1:]))


def register() -> None:
    """State the rules of this module."""
    put(adjoint, *ADJOINT.split())
    put(constant, "lift_fresh", "lift", "detach", "alias", "clone")
    put(copied, "_to_copy")
    put(moved, *MOVING.split())
    put(accumulated, "index_add.default", "scatter_add.default", "index_put.default", "_unsafe_index_put.default")
    put(scatter_reduce, "scatter_reduce.two")
    put(linspace, "linspace.default")
    put(
        made, "zeros", "ones", "empty.memory_format", "full", "arange", "eye", "scalar_tensor", "zeros_like",
        "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided",
        "empty_strided",
    )  # fmt: skip
    RULES.update({aten.copy_.default: copy_, aten.zero_.default: copy_})
    RULES.update({aten.fill_.Scalar: copy_, aten.fill_.Tensor: copy_})
