"""Defines rules of operations that select and sort: nothing is rounded, and ties fall as torch documents.

torch.max, min, argmax and argmin document the first of equal elements, and stable sorts their order. Of topk, unstable
sorts, kthvalue and median any of equal elements may be returned: members have the first of them, or the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, map_members, wrap_all
from fuzz.reference.envelope.rules.near_ties import exchange_near_ties_
from fuzz.reference.envelope.rules.reductions import inner_dims

__all__ = ["register"]

SELECTIONS = (
    "amax amin aminmax max.default max.dim min.default min.dim argmax argmin any.default any.dim any.dims all.default "
    "all.dim all.dims kthvalue.default median.default nanmedian.default cummax cummin "
    "count_nonzero msort unique_consecutive"
)


def _named(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, and the default of `dim`."""
    schema = func._schema.arguments
    given = {a.name: a.default_value for a in schema if a.name == "dim" and a.has_default_value()}
    return {**given, **dict(zip([a.name for a in schema], args, strict=False)), **kwargs}


def selection(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """amax, any, argmax, sort, ...: member by member. One dim argument at most."""
    given, x = _named(func, args, kwargs), args[0]
    if x.dim() == 0 or given.get("dim") is None:
        return wrap_all(mode, map_members(mode, func, args, kwargs))
    dims = inner_dims(given["dim"], x.dim())
    given |= {"self": x.stacked, "dim": dims[0] if isinstance(given["dim"], int) else dims}
    return wrap_all(mode, func(**given))


def stable_sort(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Stable sort and argsort: equal elements stay in their order; what rounding may exchange is exchanged."""
    out, given = selection(mode, func, args, kwargs), _named(func, args, kwargs)
    _exchange(mode, out if isinstance(out, tuple) else (out,), args[0], given)
    return out


def _exchange(mode: EnsembleMode, found: tuple[EnsembleTensor, ...], x: EnsembleTensor, given: dict[str, Any]) -> None:
    """Exchange near ties in (values, indices), or in indices alone, of a sort."""
    if x.dim() == 0:
        return
    dim = inner_dims(given["dim"], x.dim())[0]
    values, order = x.stacked.movedim(dim, -1), found[-1].stacked.movedim(dim, -1)
    exchange_near_ties_(mode.noise, order, values, _is_descending(given))
    if len(found) > 1:
        found[0].stacked.movedim(dim, -1).copy_(values.gather(-1, order))


def _is_descending(given: dict[str, Any]) -> bool:
    return bool(given.get("largest", True) if "k" in given else given.get("descending", False))


def sort_with_free_ties(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """topk, and sort and argsort where they are not stable: (values, indices), or indices alone."""
    out, given = selection(mode, func, args, kwargs), _named(func, args, kwargs)
    found, x = out if isinstance(out, tuple) else (out,), args[0]
    if x.dim() == 0:
        return out
    dim = inner_dims(given["dim"], x.dim())[0]
    for rows, last in _ties(mode, x.stacked):
        values = x.stacked[rows]
        turned = values.flip(dim) if last else values
        order = torch.sort(turned, stable=True, dim=dim, descending=_is_descending(given)).indices
        order = order.narrow(dim, 0, found[-1].stacked.shape[dim])
        order = values.shape[dim] - 1 - order if last else order
        found[-1].stacked[rows] = order
        if len(found) > 1:
            found[0].stacked[rows] = values.gather(dim, order)
    _exchange(mode, found, x, given)
    return out


def pick_with_free_ties(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """kthvalue, median and mode along a dim: the index is that of any element with the value.

    Members have the first and the last of them; what else could be picked is kept for the gradient.
    """
    out, given, x = selection(mode, func, args, kwargs), _named(func, args, kwargs), args[0]
    if x.dim() == 0:
        return out
    dim, picked, index = inner_dims(given["dim"], x.dim())[0], out[0].stacked, out[1].stacked
    if not given.get("keepdim", False):
        picked, index = picked.unsqueeze(dim), index.unsqueeze(dim)
    for rows, last in _ties(mode, x.stacked):
        values = x.stacked[rows]
        equal = ((values == picked[rows]) | values.isnan() & picked[rows].isnan()).to(torch.uint8)
        place = (equal.flip(dim) if last else equal).argmax(dim, True)
        index[rows] = values.shape[dim] - 1 - place if last else place
        if last:
            unperturbed = index[[row - row % mode.noise.count for row in rows]]
            mode.mark_free_pick(out[1].stacked, rows, equal.scatter(dim, unperturbed, 0).bool())
    return out


def _ties(mode: EnsembleMode, stacked: Tensor) -> Iterator[tuple[list[int], bool]]:
    """Rows of a stack whose ties fall to the first of equal elements, and to the last."""
    noise = mode.noise
    for last in (False, True):
        rows = noise.step_rows[last::2]
        if rows and stacked.numel():
            yield [first + row for first in range(0, noise.rows, noise.count) for row in rows], last


def register() -> None:
    """State the rules of this module."""
    RULES.register(sort_with_free_ties, "topk", "sort.default", "argsort.default")
    RULES.register(stable_sort, "sort.stable", "argsort.stable")
    RULES.register(pick_with_free_ties, "kthvalue.default", "median.dim", "nanmedian.dim", "mode")
    RULES.register(selection, *SELECTIONS.split())
