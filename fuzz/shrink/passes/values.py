"""Plain values: zeros, ones, small numbers, few significant bits. Large tensors by recipe, small ones by element.


`listed` first writes out what a recipe made, so that single elements can be changed. `smallest_values` enumerates
assignments of few plain numbers in their order, so that the same bug ends in the same case from any start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, islice, pairwise, product

import numpy as np

from fuzz.model.case import Argument, Case
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Exact, Recipe, exact, recipe
from fuzz.target.spec import Target

WRITTEN = 512
"""Stored elements up to which a tensor's bits are written out one by one."""
PLAIN = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 4.0, -4.0, 8.0, -8.0, 16.0, 3.0, -3.0)
"""Numbers tried for single elements, simplest first."""
ALPHABET = (1.0, -1.0, 2.0, -2.0, 0.5, 4.0, -4.0, 16.0, -16.0)
SWAPPED = 32
"""Elements up to which a tensor's neighbours are swapped one pair after the other."""
ENUMERATED = 1500
"""Assignments that smallest_values tries."""


def plain_recipes(case: Case, target: Target) -> Iterator[Case]:
    """All tensors, then each, to zeros, ones and a few small recipes; keeps shapes and layouts."""
    kinds = (recipe("zeros"), recipe("ones"), recipe("integers", 0, bound=1), recipe("normal", 0))
    for kind in kinds:
        yield _every(case, kind)
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            for kind in kinds:
                fitting = named_dtype(value.dtype).kind in kind.kind.fits
                if fitting and _size(value, call.dims) > 1 and value.values != kind:
                    yield case.with_call(index, call.with_argument(name, replace(value, values=kind)))


def listed(case: Case) -> Case:
    """The case with the patterns of every small tensor written out; the same bits."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            if not isinstance(value.values, Exact) and _size(value, call.dims) <= WRITTEN:
                patterns = exact(value.bits(call.dims), named_dtype(value.dtype))
                call = call.with_argument(name, replace(value, values=patterns))
        case = case.with_call(index, call)
    return case


def zero_chunks(case: Case, target: Target) -> Iterator[Case]:
    """Runs of elements to zero: all of a tensor, halves, quarters, down to single ones."""
    for index, name, value, bits in _written(case):
        size = len(bits)
        chunk = size
        while chunk:
            for start in range(0, size, chunk):
                run = range(start, min(start + chunk, size))
                if any(bits[start : start + chunk]):
                    yield _with_bits(case, index, name, value, _put(bits, dict.fromkeys(run, 0)))
            chunk //= 2


def plain_numbers(case: Case, target: Target) -> Iterator[Case]:
    """Single elements, and all non-zeros of a tensor at once, to plain numbers."""
    for index, name, value, bits in _written(case):
        kind = named_dtype(value.dtype)
        plain = (
            [int(pattern) for pattern in np.atleast_1d(to_bits(np.array(PLAIN), kind))] if kind.is_float else [1, 2, 3]
        )
        places = [place for place, pattern in enumerate(bits) if pattern]
        for pattern in plain[:4]:
            yield _with_bits(case, index, name, value, _put(bits, dict.fromkeys(places, pattern)))
        for place in places:
            for pattern in plain:
                if pattern != bits[place]:
                    yield _with_bits(case, index, name, value, _put(bits, {place: pattern}))


def fewer_bits(case: Case, target: Target) -> Iterator[Case]:
    """Single elements rounded to few significant bits, towards exponent 0, and to the positive side."""
    for index, name, value, patterns in _written(case):
        kind = named_dtype(value.dtype)
        if not kind.is_float:
            continue
        for place, pattern in enumerate(patterns):
            for simpler in _simpler(pattern, kind):
                yield _with_bits(case, index, name, value, _put(patterns, {place: simpler}))


def smallest_values(case: Case, target: Target) -> Iterator[Case]:
    """Assignments of plain numbers to few elements, the rest 0, in the order of cases."""
    slots = [(index, name, place) for index, name, _, bits in _written(case) for place in range(len(bits))]
    tensors = {(index, name): (value, bits) for index, name, value, bits in _written(case)}
    present = sum(1 for _, bits in tensors.values() for pattern in bits if pattern)
    if not slots or len(slots) > 24:
        return
    yield from islice(_assigned(case, tensors, slots, present), ENUMERATED)


def _assigned(
    case: Case,
    tensors: dict[tuple[int, str], tuple[Argument, tuple[int, ...]]],
    slots: list[tuple[int, str, int]],
    most: int,
) -> Iterator[Case]:
    bits_of_number = {
        key: [int(pattern) for pattern in np.atleast_1d(to_bits(np.array(ALPHABET), named_dtype(value.dtype)))]
        for key, (value, _) in tensors.items()
        if named_dtype(value.dtype).is_float
    }
    for count in range(most + 1):
        letters = range(len(ALPHABET) if count < 3 else 3)
        for choice in sorted(product(letters, repeat=count), key=sum):
            for places in combinations(reversed(slots), count):
                yield _assignment(case, tensors, bits_of_number, places, choice)


def _assignment(
    case: Case,
    tensors: dict[tuple[int, str], tuple[Argument, tuple[int, ...]]],
    numbers: dict[tuple[int, str], list[int]],
    places: tuple[tuple[int, str, int], ...],
    choice: tuple[int, ...],
) -> Case:
    for (index, name), (value, bits) in tensors.items():
        if (index, name) not in numbers:
            continue
        put = {
            place: numbers[index, name][letter]
            for (at, key, place), letter in zip(places, choice, strict=True)
            if (at, key) == (index, name)
        }
        case = _with_bits(case, index, name, value, _put((0,) * len(bits), put))
    return case


def sorted_values(case: Case, target: Target) -> Iterator[Case]:
    """A tensor's patterns, as bits, in ascending order, and single neighbours swapped: equal cases end in one."""
    for index, name, value, patterns in _written(case):
        yield _with_bits(case, index, name, value, tuple(sorted(patterns)))
        if len(patterns) <= SWAPPED:
            for place, (one, other) in enumerate(pairwise(patterns)):
                if one > other:
                    yield _with_bits(case, index, name, value, _put(patterns, {place: other, place + 1: one}))


def _simpler(pattern: int, kind: DType) -> Iterator[int]:
    number = float(from_bits(np.array([pattern], dtype=kind.unsigned), kind)[0])
    if number == 0 or not math.isfinite(number):
        return
    mantissa, exponent = math.frexp(number)
    for bits in range(1, kind.mantissa + 1):
        for rounded in (math.floor(mantissa * 2**bits), math.ceil(mantissa * 2**bits)):
            yield _pattern(math.ldexp(rounded, exponent - bits), kind)
    step = exponent - 1
    while step:
        yield _pattern(math.ldexp(mantissa, exponent - step), kind)
        step = int(step / 2)
    yield _pattern(math.ldexp(mantissa, exponent - (1 if exponent > 1 else -1)), kind)
    yield _pattern(abs(number), kind)


def _pattern(number: float, kind: DType) -> int:
    return int(to_bits(np.array([number]), kind)[0])


def _written(case: Case) -> Iterator[tuple[int, str, Argument, tuple[int, ...]]]:
    """(call, name, argument, bits) of the tensors whose bits are written out."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            if isinstance(value.values, Exact):
                yield index, name, value, value.values.bits


def _with_bits(case: Case, index: int, name: str, value: Argument, bits: tuple[int, ...]) -> Case:
    call = case.calls[index]
    return case.with_call(index, call.with_argument(name, replace(value, values=Exact(bits, value.dtype))))


def _put(bits: tuple[int, ...], changes: dict[int, int]) -> tuple[int, ...]:
    listed_bits = list(bits)
    for place, pattern in changes.items():
        listed_bits[place] = pattern
    return tuple(listed_bits)


def _every(case: Case, kind: Recipe) -> Case:

    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            if named_dtype(value.dtype).kind in kind.kind.fits:
                call = call.with_argument(name, replace(value, values=kind))
        case = case.with_call(index, call)
    return case


def _size(value: Argument, dims: Mapping[str, int]) -> int:
    return math.prod(value.layout.stored(resolve(value.shape, dims)))
