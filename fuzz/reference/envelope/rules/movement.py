"""Defines rules of data movement, which is exact. Views share stacked memory, so that writes through them are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten
from fuzz.reference.envelope.ensemble import (
    RULES,
    EnsembleMode,
    EnsembleTensor,
    align,
    map_members,
    unwrap,
    wrap,
    wrap_all,
)

__all__ = ["register"]


def apply_to_stack(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operations that never look at a leading dim: tril, pads, fill."""
    return wrap(mode, func(args[0].stacked, *args[1:], **kwargs))


def clone(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """clone and _to_copy. A cast rounds every member exactly. Formats of a certain rank (channels last) are ignored.

    A cast to integers is undecided where the bound of a number reaches the next one.
    """
    kwargs = {k: v for k, v in kwargs.items() if k not in ("memory_format", "layout", "pin_memory", "non_blocking")}
    plain_format = {"memory_format": torch.contiguous_format} if func._schema.name == "aten::clone" else {}
    stacked, kind = args[0].stacked, kwargs.get("dtype")
    if kind is not None and kind is not torch.bool and not kind.is_floating_point:
        stacked = mode.noise.widen(stacked)
    out = wrap(mode, func(stacked, *args[1:], **kwargs, **plain_format))
    out.recurrence = mode.recurrence_of(args[0])
    return out


def view(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """view, _unsafe_view, reshape."""
    t = args[0].stacked
    size = _infer_size(args[1], args[0].numel())
    if func._schema.name == "aten::view":
        return wrap(mode, t.view(t.shape[0], *size))
    return wrap(mode, t.reshape(t.shape[0], *size))


def _infer_size(shape: list[int], numel: int) -> list[int]:
    """A size with its -1 computed: with a member dim in front of an empty tensor torch could not."""
    size = list(shape)
    if -1 in size:
        known = 1
        for s in size:
            known *= s if s != -1 else 1
        size[size.index(-1)] = numel // known if known else 0
    return size


def dtype_view(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """view.dtype: a reinterpretation of bits; members as they are."""
    return wrap(mode, func(args[0].stacked, args[1]))


def expand(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """expand: new dims go behind the member dim."""
    t = args[0].stacked
    for _ in range(len(args[1]) - (t.dim() - 1)):
        t = t.unsqueeze(1)
    return wrap(mode, t.expand(t.shape[0], *args[1]))


def repeat(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """repeat: new dims go behind the member dim."""
    t = args[0].stacked
    for _ in range(len(args[1]) - (t.dim() - 1)):
        t = t.unsqueeze(1)
    return wrap(mode, t.repeat(1, *args[1]))


def as_strided(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """as_strided: the same window of each member's memory."""
    t = args[0].stacked
    offset = args[3] if len(args) > 3 and args[3] is not None else t.storage_offset()
    return wrap(mode, t.as_strided((t.shape[0], *args[1]), (t.stride(0), *args[2]), offset))


def permute(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """permute."""
    rank = args[0].dim()
    return wrap(mode, args[0].stacked.permute(0, *(d % rank + 1 for d in args[1])))


def t(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """t: the transpose of a matrix, a vector as it is."""
    x = args[0].stacked
    return wrap(mode, x.transpose(1, 2) if args[0].dim() == 2 else x.view_as(x))


def squeeze(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """squeeze with no dim, one or several: never the member dim."""
    x, rank = args[0].stacked, args[0].dim()
    if rank == 0:
        return wrap(mode, x.view_as(x))
    dims = range(rank) if len(args) == 1 else [args[1]] if isinstance(args[1], int) else args[1]
    return wrap(mode, x.squeeze([d % rank + 1 for d in dims if x.shape[d % rank + 1] == 1]))


def _with_defaults(values: tuple[int, ...], *defaults: int) -> list[int]:
    """Positional arguments with the trailing defaults that dispatch leaves out."""
    return [*values, *defaults[len(values) :]]


def diagonal(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """diagonal(x, offset=0, dim1=0, dim2=1)."""
    rank = args[0].dim()
    offset, dim1, dim2 = _with_defaults(args[1:], 0, 0, 1)
    return wrap(mode, args[0].stacked.diagonal(offset, dim1 % rank + 1, dim2 % rank + 1))


def shift_dims(*positions: int, extra: int = 0) -> Callable[..., Any]:
    """Rule of an operation whose arguments at `positions` are dims (or lists of dims) of its first argument, or of the
    result where `extra` is 1. Defaults are filled in from the schema."""

    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rank = args[0].dim() + extra
        if rank == 0:
            return wrap_all(mode, map_members(mode, func, args, kwargs))
        values = [args[0].stacked, *args[1:]]
        for a in func._schema.arguments[len(values) : max(positions) + 1]:
            values.append(a.default_value)
        for p in positions:
            dims = values[p]
            values[p] = dims % rank + 1 if isinstance(dims, int) else [d % rank + 1 for d in dims]
        return wrap_all(mode, func(*values, **kwargs))

    return rule


def diag_embed(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """diag_embed(x, offset=0, dim1=-2, dim2=-1) of the result's dims."""
    rank = args[0].dim() + 1
    offset, dim1, dim2 = _with_defaults(args[1:], 0, -2, -1)
    return wrap(mode, torch.diag_embed(args[0].stacked, offset, dim1 % rank + 1, dim2 % rank + 1))


def roll(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """roll: without dims it rolls the flattened tensor."""
    x, rank = args[0].stacked, args[0].dim()
    if len(args) > 2 and args[2]:
        return wrap(mode, x.roll(args[1], [d % rank + 1 for d in args[2]]))
    return wrap(mode, x.reshape(x.shape[0], -1).roll(args[1], 1).view(x.shape))


def concatenate(extra: int) -> Callable[..., Any]:
    """Rule of cat (extra 0) and stack (extra 1): plain tensors are repeated for every member."""

    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        count = mode.noise.rows
        tensors = [a.stacked if type(a) is EnsembleTensor else a.expand(count, *a.shape) for a in args[0]]
        rank = max(a.dim() for a in tensors) - 1 + extra
        if not extra:  # cat skips empty tensors of shape (0,), whatever the rank of the others
            tensors = [a for a in tensors if a.dim() == rank + 1] or tensors
        dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % max(rank, 1) + 1
        return wrap(mode, func(tensors, dim))

    return rule


def scatter_part(extra: int) -> Callable[..., Any]:
    """Rule of the *_scatter operations (x, source, dim, ...): a copy of x with a part replaced."""

    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        count = mode.noise.rows
        x, source = (a.stacked if type(a) is EnsembleTensor else a.expand(count, *a.shape) for a in args[:2])
        values = [x, source, *args[2:]]
        for a in func._schema.arguments[len(values) : 3 + 2 * extra]:
            values.append(a.default_value)
        for p in range(2 + extra, 3 + 2 * extra) if extra else (2,):
            values[p] = values[p] % (x.dim() - 1) + 1
        return wrap(mode, func(*values, **kwargs))

    return rule


def backward_of_view(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """select_backward, slice_backward, ... (gradient, sizes, dim, ...): zeros around the gradient."""
    g, sizes = args[0].stacked, args[1]
    values = [g, [g.shape[0], *sizes], args[2] % len(sizes) + 1, *args[3:]]
    return wrap(mode, func(*values, **kwargs))


def diagonal_backward(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """diagonal_backward(gradient, sizes, offset, dim1, dim2)."""
    g, sizes, offset, dim1, dim2 = args[0].stacked, *args[1:]
    rank = len(sizes)
    return wrap(mode, func(g, [g.shape[0], *sizes], offset, dim1 % rank + 1, dim2 % rank + 1))


def member_by_member(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Exact operations of fixed rank or rare use: one member after another."""
    return wrap_all(mode, map_members(mode, func, args, kwargs))


def copy(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy (functional): the source in the shape and dtype of the first argument."""
    x, source = align(args[:2], mode.noise.rows)
    like = x if type(args[0]) is EnsembleTensor else x.expand(mode.noise.rows, *x.shape)
    return wrap(mode, torch.empty_like(like).copy_(source))


def copy_(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy_: straight into the members."""
    return mode.write(func, args[0], args[1])


def fill_(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """fill_, zero_."""
    if len(args) == 1 or not isinstance(args[1], Tensor):
        args[0].stacked.fill_(0 if len(args) == 1 else args[1])
        return args[0]
    return mode.write(func, args[0], args[1])


def return_argument(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Anything that returns its argument or a copy: lift, alias, detach."""
    out = wrap(mode, unwrap(args[0]).detach())
    out.recurrence = mode.recurrence_of(args[0])
    return out


LEADING_DIM_BLIND = "tril triu constant_pad_nd fill.Scalar zero"
FIXED_RANK = (
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d pixel_shuffle "
    "pixel_unshuffle channel_shuffle rot90 searchsorted bucketize isin"
)


def register() -> None:
    """State the rules of this module."""
    RULES.register(apply_to_stack, *LEADING_DIM_BLIND.split())
    RULES.register(clone, "clone", "_to_copy", "contiguous")
    RULES.register(return_argument, "detach", "alias", "lift")
    RULES.register(view, "view.default", "_unsafe_view", "_reshape_copy", "view_copy.default", "_reshape_alias")
    RULES.register(dtype_view, "view.dtype")
    RULES.register(expand, "expand", "expand_copy")
    RULES.register(repeat, "repeat")
    RULES.register(as_strided, "as_strided", "as_strided_copy")
    RULES.register(permute, "permute", "permute_copy")
    RULES.register(t, "t")
    RULES.register(squeeze, "squeeze")
    RULES.register(diagonal, "diagonal", "diagonal_copy")
    RULES.register(diag_embed, "diag_embed")
    RULES.register(roll, "roll")
    RULES.register(concatenate(0), "cat")
    RULES.register(concatenate(1), "stack")
    RULES.register(shift_dims(1, 2), "transpose.int")
    RULES.register(shift_dims(1), "select.int", "slice.Tensor", "flip", "unfold", "select_copy.int")
    RULES.register(shift_dims(1, extra=1), "unsqueeze")
    RULES.register(shift_dims(2), "split.Tensor", "split_with_sizes", "split_with_sizes_copy", "split_copy.Tensor")
    RULES.register(shift_dims(1), "unbind.int", "unbind_copy.int")
    RULES.register(scatter_part(0), "select_scatter", "slice_scatter")
    RULES.register(scatter_part(1), "diagonal_scatter")
    RULES.register(backward_of_view, "select_backward", "slice_backward")
    RULES.register(diagonal_backward, "diagonal_backward")
    RULES.register(member_by_member, *FIXED_RANK.split())
    RULES.register(copy, "copy")
    RULES.update({aten.copy_.default: copy_, aten.zero_.default: fill_})
    RULES.update({aten.fill_.Scalar: fill_, aten.fill_.Tensor: fill_, aten._reshape_alias.default: view})
