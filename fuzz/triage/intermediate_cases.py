"""Cases between the least cases of two bugs: where all of them show a bug, nothing separates the one from the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from fuzz.model import edit
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import exact
from fuzz.triage.triggers import MAX_EDITED

__all__ = ["intermediate_cases"]

STEPS: Final = 8
"""Parts into which the way from one case to the other is divided."""


class _Apart(Exception):
    """No way leads from one case to the other by changing magnitudes."""


def intermediate_cases(one: Case, other: Case) -> tuple[Case, ...]:
    """Cases whose numbers go from those of one case to those of another by equal factors; all else as in the other.

    None where the two have other arguments, sizes, dtypes, indices, zeros or signs.
    """
    if len(one.calls) != 1 or len(other.calls) != 1:
        return ()
    try:
        return tuple(_cases(one.last, other))
    except _Apart:
        return ()


def _cases(one: Call, other: Case) -> Iterator[Case]:
    if one.dims != other.last.dims or one.tensors.keys() != other.last.tensors.keys():
        raise _Apart
    for step in range(STEPS):
        share = step / STEPS

        def mixed(call: Call, name: str, value: Argument, share: float = share) -> Argument:
            return _mixed(one.tensors[name], value, call, share)

        yield edit.map_tensors(other, mixed)


def _mixed(one: Argument, other: Argument, call: Call, share: float) -> Argument:
    """The other argument with numbers of which this share of the way from those of the first one has been gone."""
    shape = other.stored_shape(call.dims)
    if one.dtype != other.dtype or one.stored_shape(call.dims) != shape or np.prod(shape) > MAX_EDITED:
        raise _Apart
    kind = named_dtype(other.dtype)
    first, last = (from_bits(value.bits(call.dims), kind) for value in (one, other))
    same = (first == last) | (first != first) & (last != last)
    if same.all():
        return other
    if not other.is_float or not (same | (first * last > 0) & np.isfinite(first) & np.isfinite(last)).all():
        raise _Apart
    with np.errstate(all="ignore"):
        size = np.exp2((1 - share) * np.log2(np.abs(first)) + share * np.log2(np.abs(last)))
    numbers = np.where(same, last, np.copysign(size, last))
    return replace(other, values=exact(to_bits(numbers, kind), kind))
