"""Defines rules of indexing: reads are exact; a sum at indices rounds as often as terms meet in an element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten, rounds
from fuzz.reference.envelope.ensemble import (
    RULES,
    EnsembleMode,
    EnsembleTensor,
    map_members,
    pad,
    unwrap,
    wrap,
    wrap_all,
)
from fuzz.reference.envelope.summation import LARGEST_SCATTER, scatter_errors, scatter_steps, sequential_steps

__all__ = ["register"]

ANY_ORDER = 2.0
"""By how much what terms of two magnitudes lose in one order may be less than in another."""
MASKS = torch.bool, torch.uint8
Placed = tuple[Tensor, Tensor]
"""Terms, and the places in a flattened tensor where they are added up, (replicas, n)."""


def _stacked(x: Any, count: int) -> Tensor:
    """The stacked tensor of an operand; a plain one is repeated."""
    t: Tensor = x.stacked if type(x) is EnsembleTensor else x.expand(count, *x.shape)
    return t


def without_members(index: Any) -> Any:
    """An index on which all members agree, as a plain tensor; otherwise as it is."""
    if type(index) is EnsembleTensor and bool((index.stacked == index.stacked[:1]).all()):
        return index.stacked[0]
    return index


def leading_mask(mode: EnsembleMode, index: Any, disagreeing: list[Tensor]) -> Any:
    """A boolean mask of member 0, for results whose shape depends on it; members that disagree go to `disagreeing`."""
    index = without_members(index)
    if type(index) is EnsembleTensor and index.dtype in MASKS:
        lead = mode.noise.unperturbed(index.stacked)
        disagreeing.append((index.stacked != lead).flatten(1).any(1))
        return lead
    return index


def poison_members(t: Tensor, disagreeing: list[Tensor]) -> Tensor:
    """NaN in floating members that would have had another shape: their spread is unbounded."""
    for members in disagreeing:
        if t.is_floating_point():
            t = torch.where(members.view(-1, *(1,) * (t.dim() - 1)), torch.nan, t)
    return t


def index(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[indices], on all members at once."""
    disagreeing: list[Tensor] = []
    indices = [None if i is None else leading_mask(mode, i, disagreeing) for i in args[1]]
    x = _stacked(args[0], mode.noise.rows)
    if any(type(i) is EnsembleTensor for i in indices):
        return wrap(mode, poison_members(index_members(mode, x, indices), disagreeing))
    if _adjacent(indices):
        return wrap(mode, poison_members(func(x, [None, *indices]), disagreeing))
    rest = [i for i in indices if i is not None]
    lead = max(i.dim() for i in rest) if all(i.dtype != torch.bool for i in rest) else 1
    return wrap(mode, poison_members(func(x, [None, *indices]).movedim(lead, 0), disagreeing))


def index_members(mode: EnsembleMode, x: Tensor, indices: Sequence[Any]) -> Tensor:
    """The stacked x[indices], where each member has indices of its own."""
    if any(i is not None and i.dtype in MASKS for i in indices):
        result: Tensor = map_members(mode, aten.index.Tensor, (wrap(mode, x), list(indices)), {})
        return result
    own, lead = indices_by_member(indices, len(x), x.device)
    t: Tensor = aten.index.Tensor(x, own)
    first = next(n for n, i in enumerate(indices) if i is not None)
    if not first or not _adjacent(list(indices)):
        return t
    return t.movedim([*range(1, 1 + lead)], [*range(1 + first, 1 + first + lead)])


def indices_by_member(indices: Sequence[Any], rows: int, device: torch.device) -> tuple[list[Any], int]:
    """Indices into a stacked tensor by which each member has its own, and how many dims they have together."""
    lead = max(i.dim() for i in indices if i is not None)
    member = torch.arange(rows, device=device).view(rows, *(1,) * lead)
    return [member, *(None if i is None else pad(i, lead) for i in indices)], lead


def _adjacent(indices: list[Any]) -> bool:
    """Whether the index tensors stand together: indexed dims stay in place then, and go to the front otherwise."""
    used = [n for n, i in enumerate(indices) if i is not None]
    return used[-1] - used[0] + 1 == len(used)


def gather(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """gather(x, dim, index)."""
    if args[0].dim() == 0 or args[2].dim() == 0:
        return wrap(mode, map_members(mode, func, args, {}))
    count, dim = mode.noise.rows, args[1] % args[0].dim() + 1
    return wrap(mode, torch.gather(_stacked(args[0], count), dim, _stacked(args[2], count)))


def index_select(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_select(x, dim, index)."""
    indices, rank = without_members(args[2]), args[0].dim()
    if rank == 0:
        return wrap(mode, map_members(mode, func, (args[0], args[1], indices), {}))
    x, dim = _stacked(args[0], mode.noise.rows), args[1] % rank + 1
    if type(indices) is EnsembleTensor:
        return wrap(mode, x.gather(dim, along_dim(indices.stacked, dim, x.shape)))
    return wrap(mode, x.index_select(dim, indices))


def along_dim(indices: Tensor, dim: int, shape: Sequence[int]) -> Tensor:
    """Each member's indices along a dim of a stacked tensor of that shape, as gather and scatter_add take them."""
    count = indices.numel() // len(indices)
    lined = indices.long().reshape(len(indices), *(count if d == dim else 1 for d in range(1, len(shape))))
    return lined.expand([count if d == dim else size for d, size in enumerate(shape)])


def embedding(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding(weight, indices, ...): rows of the weight."""
    rows = without_members(args[1])
    w = _stacked(args[0], mode.noise.rows)
    if type(rows) is EnsembleTensor:
        return wrap(mode, w.gather(1, along_dim(rows.stacked, 1, w.shape)).view(len(w), *rows.shape, *w.shape[2:]))
    return wrap(mode, w.index_select(1, rows.reshape(-1)).view(w.shape[0], *rows.shape, *w.shape[2:]))


def apply_data_dependent(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """masked_select, nonzero: the shape is member 0's."""
    disagreeing: list[Tensor] = []
    last = leading_mask(mode, args[-1], disagreeing)
    if type(last) is EnsembleTensor:  # nonzero of values that differ: the same places unless some are zero in one only
        last = mode.noise.unperturbed(last.stacked)
    if len(args) == 1:
        return func(last)
    return wrap(mode, poison_members(map_members(mode, func, (args[0], last), {}), disagreeing))


def scatter(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter, index_copy, index_fill, masked_scatter, take: exact; all but scatter member by member.

    Where the index is one of equal elements, as in the gradient of median, some members scatter to all the others.
    """
    if func in (aten.scatter.src, aten.scatter.value) and has_equal_ranks(*args):
        rows, source = mode.noise.rows, args[3]
        source = _stacked(source, rows) if isinstance(source, Tensor) else source
        stacks = _stacked(args[0], rows), args[1] % args[0].dim() + 1, _stacked(args[2], rows)
        out, pick = func(*stacks, source), mode.free_pick(args[2])
        if pick is not None and isinstance(source, Tensor) and pick.others.shape[1:] == out.shape[1:]:
            begin, dim = stacks[0][pick.rows], stacks[1]
            elsewhere = torch.where(pick.others, source[pick.rows], begin)
            out[pick.rows] = torch.where(pick.others.any(dim, keepdim=True), elsewhere, out[pick.rows])
        return wrap(mode, out)
    return wrap_all(mode, map_members(mode, func, args, kwargs))


def _accumulate(
    mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], source: int, rest: tuple[Any, ...] = ()
) -> Any:
    """Result, sum of absolute terms and number of terms of an operation that adds args[source] into args[0]."""
    noise = mode.noise
    t = accumulate_members(mode, func, args, rest)
    if not t.is_floating_point():
        return wrap(mode, t)
    start, added = _stacked(args[0], noise.rows), unwrap(args[source])
    perturbed = added is not args[source]
    sizes = _with(args, start.abs(), source, added.abs(), perturbed)
    ones = _with(args, (start != 0).to(t.dtype), source, torch.ones_like(added), perturbed)
    terms, count = accumulate_members(mode, func, sizes, rest), accumulate_members(mode, func, ones, rest)
    if noise.flush_to_zero:
        # PTX ISA, `atom`: float32 additions to global memory flush subnormal operands and results.
        noise.flush_terms_(t, torch.minimum(terms, count * (noise.precision.eta / 4)))
    return wrap(mode, add_up_(mode, t, terms, count, placed(mode, func, args, source)))


def placed(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], source: int) -> Placed | None:
    """What the unperturbed member of each replica adds up: terms and where they go, (replicas, n), the start first.

    None where there are too many to sort them for each operation, and where they are not float32.
    """
    noise, size = mode.noise, args[0].numel()
    if not noise.is_float32 or not 0 < noise.replicas * (size + args[source].numel()) <= LARGEST_SCATTER:
        return None
    terms, places = [], []
    for row in range(0, noise.rows, noise.count):
        own = [of_member(x, row) for x in args]
        positions = torch.arange(size, device=own[0].device).view(own[0].shape)
        if func in (aten.index_put.default, aten._unsafe_index_put.default):
            to = aten.index.Tensor(positions, own[1])
        elif func is aten.index_add.default:
            to = positions.index_select(own[1], own[2])
        else:
            to = positions.gather(own[1], own[2])
            own[3] = own[3][tuple(slice(n) for n in own[2].shape[: own[3].dim()])]
        given = own[source] if own[source].numel() == to.numel() else own[source].expand_as(to)
        terms.append(torch.cat([own[0].reshape(-1), given.reshape(-1)]))
        places.append(torch.cat([positions.reshape(-1), to.reshape(-1)]))
    return torch.stack(terms), torch.stack(places)


def of_member(x: Any, row: int) -> Any:
    """An argument, or a list of indices, as one row of the stack has it."""
    if isinstance(x, list | tuple):
        return [of_member(part, row) for part in x]
    return x.stacked[row] if type(x) is EnsembleTensor else x


def add_up_(
    mode: EnsembleMode, t: Tensor, sizes: Tensor, count: Tensor, added: Placed | None, divisor: Tensor | None = None
) -> Tensor:
    """Perturb the stacked t, whose elements are sums of `count` terms and of `sizes` in magnitude, or their means.

    Terms are `added` up as those of sums are. Where they are too many, as atomics add equal ones.
    """
    noise = mode.noise
    if added is None:
        return noise.add_error_(t, sizes.mul_(sequential_steps(count)), 1.0)
    error = None
    if bool((count > 1).any()):
        error = noise.measure(scatter_errors, *added, math.prod(t.shape[1:]))
    if error is not None:
        error = ANY_ORDER * error.view(-1, *t.shape[1:])
        error = error if divisor is None else error / divisor.clamp(min=1.0)
    return noise.add_error_(t, sizes.mul_(scatter_steps(count)), 1.0, sum_error=error)


def has_equal_ranks(x: Tensor, dim: int, indices: Tensor, source: Any) -> bool:
    """Whether the operands of a scatter have dims, as many as each other: its rule shifts them all by one."""
    return 0 < x.dim() == indices.dim() and (not isinstance(source, Tensor) or source.dim() == x.dim())


def accumulate_members(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], rest: tuple[Any, ...]) -> Tensor:
    """The stacked result of such an operation: of all members at once, or one after another."""
    rank, rows = args[0].dim(), mode.noise.rows
    if func is aten.index_put.default and not any(i is None or i.dtype in MASKS for i in args[1]):
        own, lead = indices_by_member(args[1], rows, args[0].device)
        return _stacked(args[0], rows).index_put(own, pad(args[2], lead + rank - len(args[1])), True)
    if (
        func is aten.scatter_add.default
        and has_equal_ranks(*args)
        or func is aten.index_add.default
        and has_full_source(*args)
    ):
        dim, positions, values = args[1] % rank + 1, _stacked(args[2], rows), _stacked(args[3], rows)
        positions = along_dim(positions, dim, values.shape) if func is aten.index_add.default else positions
        return _stacked(args[0], rows).scatter_add(dim, positions, values)
    result: Tensor = map_members(mode, func, (*args, *rest), {})
    return result


def has_full_source(x: Tensor, dim: int, indices: Tensor, source: Tensor) -> bool:
    """Whether the source of an index_add is as large as torch wants it to be."""
    return 0 < x.dim() == source.dim() and all(
        size == (indices.numel() if d == dim % x.dim() else x.shape[d]) for d, size in enumerate(source.shape)
    )


def _with(args: tuple[Any, ...], start: Tensor, source: int, added: Tensor, stacked: bool) -> tuple[Any, ...]:
    """The arguments with another first argument and another source, both stacked (the source only if it was)."""
    from fuzz.reference.envelope.rules.linear import wrap_stacked

    values = list(args)
    values[0], values[source] = wrap_stacked(start), wrap_stacked(added) if stacked else added
    return tuple(values)


@rounds
def index_add(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_add(x, dim, index, source, *, alpha) and scatter_add(x, dim, index, source)."""
    if kwargs.get("alpha", 1) != 1:
        with mode:
            args = (*args[:3], args[3] * kwargs["alpha"])
    return _accumulate(mode, func, args, 3)


def bincount(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """bincount(indices, weights, minlength): a count is exact, a sum of weights is one of index_add."""
    given = {**dict(zip(("indices", "weights", "minlength"), args, strict=False)), **kwargs}
    indices, weights = args[0], given.get("weights")
    if weights is None:
        return wrap(mode, map_members(mode, func, args, kwargs))
    with mode:
        size = max(given.get("minlength", 0), int(indices.max()) + 1 if indices.numel() else 0)
        return weights.new_zeros(size).index_add(0, indices, weights)


@rounds
def index_put(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """index_put(x, indices, values, accumulate)."""
    disagreeing: list[Tensor] = []
    indices = [None if i is None else leading_mask(mode, i, disagreeing) for i in args[1]]
    if len(args) > 3 and args[3]:
        return _accumulate(mode, func, (args[0], indices, args[2]), 2, (True,))
    return wrap(mode, poison_members(map_members(mode, func, (args[0], indices, args[2]), {}), disagreeing))


@rounds
def scatter_reduce(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """scatter_reduce(x, dim, index, source, reduce, *, include_self): minima and maxima are exact."""
    reduce = args[4]
    t = map_members(mode, func, args, kwargs)
    if reduce in ("amin", "amax") or not t.is_floating_point():
        return wrap(mode, t)
    start, added = _stacked(args[0], mode.noise.rows), unwrap(args[3])
    begins = torch.ones_like(start) if kwargs.get("include_self", True) else torch.zeros_like(start)
    ones = _with(args[:4], begins, 3, torch.ones_like(added), added is not args[3])
    count = accumulate_members(mode, aten.scatter_add.default, ones, ())
    if reduce == "prod":
        return wrap(mode, mode.noise.round_(t, float(count.max()) if count.numel() else 1.0))
    from fuzz.reference.envelope.rules.linear import absolute

    bounds = map_members(mode, func, absolute(args), kwargs)
    terms = placed(mode, func, args, 3)
    if terms is not None and not kwargs.get("include_self", True):
        terms[0][:, : args[0].numel()] = 0.0
    if reduce == "sum":
        return wrap(mode, add_up_(mode, t, bounds, count, terms))
    mean = add_up_(mode, t, bounds, count, terms, mode.noise.first_members(count))
    return wrap(mode, torch.where(count > 1, mode.noise.round_(mean.clone(), 2.0), mean))


def register() -> None:
    """State the rules of this module."""
    RULES.register(index, "index.Tensor", "_unsafe_index.Tensor")
    RULES.register(gather, "gather.default")
    RULES.register(index_select, "index_select.default")
    RULES.register(embedding, "embedding.default")
    RULES.register(apply_data_dependent, "masked_select.default", "nonzero.default")
    RULES.register(
        scatter, "scatter.src", "scatter.value", "index_copy.default", "index_fill", "masked_scatter.default", "take"
    )
    RULES.register(index_add, "index_add.default", "scatter_add.default")
    RULES.register(index_put, "index_put.default", "_unsafe_index_put.default")
    RULES.register(bincount, "bincount.default")
    RULES.register(scatter_reduce, "scatter_reduce.two")
