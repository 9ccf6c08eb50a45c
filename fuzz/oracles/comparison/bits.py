"""Compares the results of two runs, bit for bit or within the error bounds, and shows the elements that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES, as_words, read_words
from fuzz.model.dtypes import decimal, hex_bits, overflow_threshold
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Element, Finding

MAX_ELEMENTS = 4
"""Elements that a finding shows."""
Outputs = Mapping[str, torch.Tensor]
Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""(this run, the other run) by output."""


def make_element(output: str, index: tuple[int, ...], got: torch.Tensor, want: str, **more: Any) -> Element:
    """One element of a tensor, spelled for people."""
    return spell_word(output, index, int(read_words(got[index].reshape(1))[0]), got.dtype, want, **more)


def spell_word(output: str, index: tuple[int, ...], word: int, dtype: torch.dtype, want: str, **more: Any) -> Element:
    """The element with these bits, spelled for people."""
    kind = named_dtype(DTYPE_NAMES[dtype])
    return Element(output, index, decimal(word, kind), hex_bits(word, kind), want, **more)


def differing_rows(pairs: Pairs) -> list[int]:
    """Rows of stacked tensors, (rows, *shape) each, in which some pair has different bits."""
    rows = _rows_unlike(pairs, lambda got, other: as_words(got) == as_words(other))
    # Most have the very same words; what differs in nothing but NaNs of other payloads is told apart only then.
    return _rows_unlike(pairs, same_bits) if rows else []


def _rows_unlike(pairs: Pairs, alike: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> list[int]:
    """Rows in which elements of some pair are not alike."""
    unlike = [~alike(*pair).reshape(len(pair[0]), math.prod(pair[0].shape[1:])).all(1) for pair in pairs.values()]
    if not unlike:
        return []
    # Some outputs may be on the host.
    return torch.stack([rows.to(unlike[0].device) for rows in unlike]).any(0).nonzero().flatten().tolist()


def differing_indices(before: torch.Tensor, after: torch.Tensor) -> np.ndarray:
    """Indices (n, rank) of the elements whose bits differ; NaNs of any payload are equal."""
    return (~same_bits(before, after)).nonzero().cpu().numpy()


def same_bits(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Element by element; NaNs of any payload are equal."""
    if not before.is_floating_point():
        return before == after
    same = (before == after) & (torch.signbit(before) == torch.signbit(after))
    return same | (before.isnan() & after.isnan())


def compare_values(oracle: str, what: str, pairs: Pairs, bounds: Iterable[Outputs]) -> Finding | None:
    """A finding where two runs differ by more than twice the bound, so that not both of them can be inside it.

    Where the bound is infinite both may be anything, NaN too. `bounds` grow from one to the next: the later ones are
    asked for only where the runs differ by more than the earlier ones allow.
    """
    for each in bounds:
        pairs = dict(drifted_outputs(pairs, each))
        if not pairs:
            return None
    return compare_bits(oracle, what, pairs, "drift")


def drifted_outputs(pairs: Pairs, bounds: Outputs) -> Iterator[tuple[str, tuple[torch.Tensor, torch.Tensor]]]:
    """The outputs that differ by more than twice their bounds, with what differs less made equal."""
    for name, (got, other) in pairs.items():
        agrees = within_bound(got, other, bounds[name])
        if not bool(agrees.all()):
            yield name, (torch.where(agrees, other, got), other)


def within_bound(got: torch.Tensor, other: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Element by element whether two runs differ by at most twice the bound. An infinite one allows anything.

    An infinity counts as the least number that rounds to it, as what overflows may be inside the bound.
    """
    difference = (least_magnitudes(got) - least_magnitudes(other)).abs()
    agrees = (difference <= 2 * bound) | (got == other) | (got.isnan() & other.isnan())
    return agrees | ~torch.isfinite(bound)


def least_magnitudes(output: torch.Tensor) -> torch.Tensor:
    """float64 numbers of which an output may be the rounded ones, the least ones where it is infinite."""
    if not output.is_floating_point():
        return output.double()
    limit = overflow_threshold(named_dtype(DTYPE_NAMES[output.dtype]))
    return output.double().clamp(-limit, limit)


def compare_bits(oracle: str, what: str, pairs: Pairs, symptom: str = "bits") -> Finding | None:
    """A finding where two runs that must agree bit for bit do not. Pairs are (this run, the other run) by output."""
    outputs, elements, count, total = [], [], 0, 0
    for name, (got, other) in pairs.items():
        places = differing_indices(got, other)
        if len(places):
            outputs.append(name)
            count, total = count + len(places), total + got.numel()
            for place in places[:MAX_ELEMENTS]:
                index = tuple(int(i) for i in place)
                elements.append(make_element(name, index, got, make_element(name, index, other, "").got))
    if not outputs:
        return None
    verb = "differ by more than the envelope allows" if symptom == "drift" else "have other bits"
    message = f"{'+'.join(outputs)}: {count} of {total} elements {verb} {what}"
    return Finding(
        oracle, tuple(outputs), symptom, message, tuple(elements[:MAX_ELEMENTS]), disagreeing=count, compared=total
    )
