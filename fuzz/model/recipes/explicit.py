"""Defines values that are written out: exact bits, and a recipe with some elements overridden."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from fuzz.model.dtypes import Bits, DType, dtype
from fuzz.model.recipes.generation import generate
from fuzz.model.recipes.recipe import Recipe

Overrides: TypeAlias = tuple[tuple[int, int], ...]
"""(flat index, pattern) pairs, by index, each index once."""


@dataclass(frozen=True)
class Exact:
    """The bits of every element in row-major order, in the format of that name."""

    bits: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        top = dtype(self.dtype).max_bits
        if self.bits and not (0 <= min(self.bits) and max(self.bits) <= top):
            wrong = next(pattern for pattern in self.bits if not 0 <= pattern <= top)
            raise ValueError(f"pattern {wrong:#x} does not fit {self.dtype}")


@dataclass(frozen=True)
class Patched:
    """What a recipe makes, except for the bits that `overrides`, one at least, puts at some flat indices."""

    recipe: Recipe
    overrides: Overrides

    def __post_init__(self) -> None:
        indices = [index for index, _ in self.overrides]
        if not indices or indices != sorted(set(indices)) or indices[0] < 0:
            raise ValueError(f"overrides at {indices[:8]} should name one flat index or more, each once, in order")


Values: TypeAlias = Recipe | Patched | Exact


def patched(recipe: Recipe, overrides: Overrides) -> Recipe | Patched:
    """What a recipe makes, except for the overrides, if there are any."""
    return Patched(recipe, overrides) if overrides else recipe


def bits_of(values: Values, shape: tuple[int, ...], d: DType) -> Bits:
    """The bits of any kind of values, a new array of `shape`; ValueError where they do not fill or fit it."""
    if isinstance(values, Recipe):
        return np.asarray(generate(values, shape, d))
    if isinstance(values, Patched):
        return override(np.asarray(generate(values.recipe, shape, d)), values.overrides, d)
    if values.dtype != d.name:
        raise ValueError(f"exact bits of {values.dtype} cannot fill a tensor of {d.name}")
    if len(values.bits) != prod(shape):
        raise ValueError(f"{len(values.bits)} bits for {prod(shape)} elements")
    return np.array(values.bits, dtype=d.unsigned).reshape(shape)


def override(bits: Bits, overrides: Overrides, d: DType) -> Bits:
    """A copy of `bits` with these ones put in; ValueError for an index or pattern out of range."""
    check_overrides(overrides, bits.size, d)
    changed = bits.reshape(-1).copy()
    for index, pattern in overrides:
        changed[index] = pattern
    return changed.reshape(bits.shape)


def check_overrides(overrides: Overrides, size: int, d: DType) -> None:
    """ValueError unless all of them fit a tensor of so many elements of this format."""
    for index, pattern in overrides:
        if not 0 <= index < size:
            raise ValueError(f"override at {index} is outside {size} elements")
        if not 0 <= pattern <= d.max_bits:
            raise ValueError(f"pattern {pattern:#x} does not fit {d.name}")


def exact(bits: Bits, d: DType) -> Exact:
    """An array's bits as data."""
    return Exact(tuple(bits.reshape(-1).tolist()), d.name)
