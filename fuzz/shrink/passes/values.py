"""Passes towards plain values: zeros, ones, small numbers, few significant bits.

Large tensors get a plainer recipe. `write_out_small` writes out what a recipe made of small ones, so that single
elements can be changed. `smallest_values` enumerates assignments of few plain numbers in their order, so that the same
bug ends in the same case from any start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice, pairwise, product

import numpy as np

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.edit import map_tensors, tensors_of, with_bits, with_values, write_out
from fuzz.model.recipes import Exact, Recipe, recipe
from fuzz.target.spec import Target

MAX_WRITTEN_OUT = 512
"""Stored elements up to which a tensor's elements are written out one by one."""
PLAIN = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 4.0, -4.0, 8.0, -8.0, 16.0, 3.0, -3.0)
"""Numbers tried for single elements, simplest first."""
ALPHABET = (1.0, -1.0, 2.0, -2.0, 0.5, 4.0, -4.0, 16.0, -16.0)
"""Numbers that assignments consist of, simplest first."""
MAX_SWAPPED = 32
"""Elements up to which a tensor's neighbours are swapped one pair after the other."""
MAX_SLOTS, MAX_ASSIGNMENTS = 24, 1500
"""Elements up to which smallest_values enumerates assignments, and how many it tries."""
Slot = tuple[int, str, int]
"""(index of the call, tensor, flat index of the element)."""


def plain_recipes(case: Case, target: Target) -> Iterator[Case]:
    """All tensors, then each, to zeros, ones and a few small recipes; keeps shapes and layouts."""
    plain = (recipe("zeros"), recipe("ones"), recipe("integers", 0, bound=1), recipe("normal", 0))
    for values in plain:
        yield _with_recipe_everywhere(case, values)
    for index, name, value in tensors_of(case):
        for values in plain:
            fits = named_dtype(value.dtype).kind in values.kind.fits
            if fits and math.prod(value.stored_shape(case.calls[index].dims)) > 1 and value.values != values:
                yield with_values(case, index, name, values)


def _with_recipe_everywhere(case: Case, values: Recipe) -> Case:
    """The case with every tensor whose dtype the recipe fits made by it."""

    def with_recipe(call: Call, name: str, value: Argument) -> Argument:
        return replace(value, values=values) if named_dtype(value.dtype).kind in values.kind.fits else value

    return map_tensors(case, with_recipe)


def write_out_small(case: Case) -> Case:
    """The case with every small tensor's elements written out; the same bits."""

    def write_out_one(call: Call, name: str, value: Argument) -> Argument:
        small = math.prod(value.stored_shape(call.dims)) <= MAX_WRITTEN_OUT
        return write_out(value, call.dims) if small and not isinstance(value.values, Exact) else value

    return map_tensors(case, write_out_one)


def _exact_tensors(case: Case) -> Iterator[tuple[int, str, Exact]]:
    """(index of the call, tensor, values) of the tensors whose elements are written out."""
    for index, name, value in tensors_of(case):
        if isinstance(value.values, Exact):
            yield index, name, value.values


def zero_chunks(case: Case, target: Target) -> Iterator[Case]:
    """Runs of elements to zero: all of a tensor, halves, quarters, down to single ones."""
    for index, name, values in _exact_tensors(case):
        size = len(values.bits)
        chunk = size
        while chunk:
            for start in range(0, size, chunk):
                run = range(start, min(start + chunk, size))
                if any(values.bits[start : start + chunk]):
                    yield with_values(case, index, name, with_bits(values, dict.fromkeys(run, 0)))
            chunk //= 2


def plain_numbers(case: Case, target: Target) -> Iterator[Case]:
    """Single elements, and all non-zeros of a tensor at once, to plain numbers."""
    for index, name, values in _exact_tensors(case):
        kind = named_dtype(values.dtype)
        plain = _bits_of_numbers(PLAIN, kind) if kind.is_float else [one for one in (1, 2, 3) if one <= kind.max_bits]
        nonzeros = [element for element, pattern in enumerate(values.bits) if pattern]
        for pattern in plain[:4]:
            yield with_values(case, index, name, with_bits(values, dict.fromkeys(nonzeros, pattern)))
        for element in nonzeros:
            for pattern in plain:
                if pattern != values.bits[element]:
                    yield with_values(case, index, name, with_bits(values, {element: pattern}))


def fewer_bits(case: Case, target: Target) -> Iterator[Case]:
    """Single elements rounded to few significant bits, towards exponent 0, and to the positive side."""
    for index, name, values in _exact_tensors(case):
        kind = named_dtype(values.dtype)
        if not kind.is_float:
            continue
        for element, pattern in enumerate(values.bits):
            for simpler in _simpler(pattern, kind):
                yield with_values(case, index, name, with_bits(values, {element: simpler}))


def smallest_values(case: Case, target: Target) -> Iterator[Case]:
    """Assignments of plain numbers to few elements, the rest 0, in the order of cases."""
    tensors = {(index, name): values for index, name, values in _exact_tensors(case)}
    slots = [(*tensor, element) for tensor, values in tensors.items() for element in range(len(values.bits))]
    nonzeros = sum(1 for values in tensors.values() for pattern in values.bits if pattern)
    if slots and len(slots) <= MAX_SLOTS:
        yield from islice(_assignments(case, tensors, slots, nonzeros), MAX_ASSIGNMENTS)


def _assignments(case: Case, tensors: dict[tuple[int, str], Exact], slots: list[Slot], most: int) -> Iterator[Case]:
    """Cases with up to `most` slots set to numbers of ALPHABET, fewest slots and simplest numbers first."""
    numbers = {
        tensor: _bits_of_numbers(ALPHABET, named_dtype(values.dtype))
        for tensor, values in tensors.items()
        if named_dtype(values.dtype).is_float
    }
    for count in range(most + 1):
        letters = range(len(ALPHABET) if count < 3 else 3)
        for choice in sorted(product(letters, repeat=count), key=sum):
            for chosen in combinations(reversed(slots), count):
                yield _assign(case, tensors, numbers, dict(zip(chosen, choice, strict=True)))


def _assign(
    case: Case,
    tensors: dict[tuple[int, str], Exact],
    numbers: dict[tuple[int, str], list[int]],
    letters: dict[Slot, int],
) -> Case:
    """The case with these slots set to letters of the alphabet, all other elements of floating tensors to 0."""
    for (index, name), bits_of_letter in numbers.items():
        values = tensors[index, name]
        changes = {
            element: bits_of_letter[letter]
            for (at, tensor, element), letter in letters.items()
            if (at, tensor) == (index, name)
        }
        zeros = Exact((0,) * len(values.bits), values.dtype)
        case = with_values(case, index, name, with_bits(zeros, changes))
    return case


def sorted_values(case: Case, target: Target) -> Iterator[Case]:
    """A tensor's elements, as bits, in ascending order, and single neighbours swapped: equal cases end in one."""
    for index, name, values in _exact_tensors(case):
        bits = values.bits
        yield with_values(case, index, name, Exact(tuple(sorted(bits)), values.dtype))
        if len(bits) <= MAX_SWAPPED:
            for element, (first, second) in enumerate(pairwise(bits)):
                if first > second:
                    swapped = with_bits(values, {element: second, element + 1: first})
                    yield with_values(case, index, name, swapped)


def _simpler(pattern: int, kind: DType) -> Iterator[int]:
    """Bits of floats with fewer significant bits, an exponent nearer to 0, or no sign."""
    number = float(from_bits(np.array([pattern], dtype=kind.unsigned), kind)[0])
    if number == 0 or not math.isfinite(number):
        return
    mantissa, exponent = math.frexp(number)
    for bits in range(1, kind.mantissa + 1):
        for rounded in (math.floor(mantissa * 2**bits), math.ceil(mantissa * 2**bits)):
            yield _bits_of_number(math.ldexp(rounded, exponent - bits), kind)
    step = exponent - 1
    while step:
        yield _bits_of_number(math.ldexp(mantissa, exponent - step), kind)
        step = int(step / 2)
    yield _bits_of_number(math.ldexp(mantissa, exponent - (1 if exponent > 1 else -1)), kind)
    yield _bits_of_number(abs(number), kind)


def _bits_of_numbers(numbers: tuple[float, ...], kind: DType) -> list[int]:
    return [int(pattern) for pattern in np.atleast_1d(to_bits(np.array(numbers), kind))]


def _bits_of_number(number: float, kind: DType) -> int:
    return _bits_of_numbers((number,), kind)[0]
