"""Makes calls whose values differ though fingerprints of them agree: what keeps results by such a key is wrong then.

The values are whole numbers, so that sums of them and of their squares are exact in any order. What is changed is the
order of elements in the middle: shape, sum, mean, norm, extremes, and the first and last elements stay. Or all values
move by little, so that a comparison within a tolerance takes them for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fuzz.judge.problem.description import OWN, ProblemDescription
from fuzz.judge.problem.input_domain import ordinary_case, with_state_of
from fuzz.judge.processes.isolated_worker import as_values
from fuzz.model.case import Call
from fuzz.model.dtypes import DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import recipe
from fuzz.target.spec import Target

WHOLE = recipe("integers", bound=8)
EXCHANGED = "two elements exchanged, so that sums, first and last values stay"
REVERSED = "elements in the middle in reverse order, so that sums, first and last values stay"
MOVED_BITS = 14
"""The bits of a value that stay where it moves by little; all but the last one where its dtype has fewer."""
MOVED = f"values that differ by one part in {1 << MOVED_BITS}, or by the least that their dtype can"


def whole_call(target: Target, description: ProblemDescription, call: Call, seed: int) -> Call:
    """The call with whole numbers for all arguments that may be random, and its own parameters."""
    return with_state_of(ordinary_case(target, description, call, seed, WHOLE).last, call, description)


def exchange_two(call: Call, description: ProblemDescription) -> Call:
    """The call with two different elements of each random argument exchanged, in other rows and columns if possible."""
    return with_bits(call, description, lambda bits, dtype: in_order(bits, exchanged(from_bits(bits, dtype))))


def reverse_middle(call: Call, description: ProblemDescription) -> Call:
    """The call with the elements in the middle of each random argument in reverse order."""
    return with_bits(call, description, lambda bits, dtype: in_order(bits, reversed_middle(bits)))


def move_little(call: Call, description: ProblemDescription) -> Call:
    """The call with all elements of each random argument but zeros a little further from zero."""
    return with_bits(call, description, moved)


def with_bits(call: Call, description: ProblemDescription, change: Callable[[np.ndarray, DType], np.ndarray]) -> Call:
    """The call with other words, of the same shape, for each argument that may be random."""
    changed: Mapping[str, np.ndarray] = {
        name: argument.bits(call.dims)
        for name, argument in call.arguments.items()
        if argument.is_float and description.arguments[name].domain != OWN and not description.arguments[name].is_state
    }
    for name, bits in changed.items():
        argument = call.arguments[name]
        values = as_values(change(bits, named_dtype(argument.dtype)), argument.dtype)
        call = call.with_argument(name, replace(argument, values=values))
    return call


def in_order(bits: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The elements in another order: indices of the flattened ones."""
    return np.take(bits, order).reshape(bits.shape)


def moved(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """Ordinary values as words, a little larger in magnitude; zeros stay."""
    step = 1 << max(0, dtype.mantissa - MOVED_BITS)
    further: np.ndarray = np.where(from_bits(bits, dtype) == 0, bits, bits + bits.dtype.type(step))
    return further


def middle(size: int) -> np.ndarray:
    """The indices of the middle half; without the first and the last quarter, and never the first or last element."""
    edge = max(1, size // 4)
    return np.arange(edge, max(edge, size - edge))


def exchanged(values: np.ndarray) -> np.ndarray:
    """The order in which the largest element in the middle and the least one that shares no index with it exchange."""
    flat, order = values.reshape(-1), np.arange(values.size)
    inside = middle(values.size)
    if not inside.size:
        return order
    first = inside[np.argmax(flat[inside])]
    places = zip(np.unravel_index(inside, values.shape), np.unravel_index(first, values.shape), strict=True)
    # An axis of one element is no way to differ.
    apart = [here != there for (here, there), size in zip(places, values.shape, strict=True) if size > 1]
    others = inside[np.logical_and.reduce(apart)] if np.logical_and.reduce(apart).any() else inside
    second = others[np.argmin(flat[others])]
    order[[first, second]] = second, first
    return order


def reversed_middle(values: np.ndarray) -> np.ndarray:
    """The order in which the middle half is reversed."""
    order, inside = np.arange(values.size), middle(values.size)
    order[inside] = inside[::-1]
    return order
