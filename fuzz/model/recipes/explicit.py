"""Values that are listed rather than made: exact words, and a recipe with some words overridden."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from fuzz.model.dtypes import DType, Words, dtype
from fuzz.model.recipes.generation import generate
from fuzz.model.recipes.recipe import Recipe

Overrides: TypeAlias = tuple[tuple[int, int], ...]
"""(flat index, word) pairs, by index, each index once."""


@dataclass(frozen=True)
class Exact:
    """The words of every element in row-major order, in the format of that name."""

    words: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        top = dtype(self.dtype).top_word
        if self.words and not (0 <= min(self.words) and max(self.words) <= top):
            wrong = next(word for word in self.words if not 0 <= word <= top)
            raise ValueError(f"word {wrong:#x} does not fit {self.dtype}")


@dataclass(frozen=True)
class Patched:
    """What a recipe makes, except for the words that `overrides` puts at some flat indices."""

    recipe: Recipe
    overrides: Overrides

    def __post_init__(self) -> None:
        places = [index for index, _ in self.overrides]
        if places != sorted(set(places)) or (places and places[0] < 0):
            raise ValueError(f"overrides at {places[:8]} should name each flat index once, in order")


Values: TypeAlias = Recipe | Patched | Exact


def words_of(values: Values, shape: tuple[int, ...], d: DType) -> Words:
    """The words of any kind of values, a new array of `shape`; ValueError where they do not fill or fit it."""
    if isinstance(values, Recipe):
        return np.asarray(generate(values, shape, d))
    if isinstance(values, Patched):
        return override(np.asarray(generate(values.recipe, shape, d)), values.overrides, d)
    if values.dtype != d.name:
        raise ValueError(f"exact words of {values.dtype} cannot fill a tensor of {d.name}")
    if len(values.words) != prod(shape):
        raise ValueError(f"{len(values.words)} words for {prod(shape)} elements")
    return np.array(values.words, dtype=d.word).reshape(shape)


def override(words: Words, overrides: Overrides, d: DType) -> Words:
    """A copy of `words` with these ones put in; ValueError for an index or word out of range."""
    check_overrides(overrides, words.size, d)
    changed = words.reshape(-1).copy()
    for index, word in overrides:
        changed[index] = word
    return changed.reshape(words.shape)


def check_overrides(overrides: Overrides, size: int, d: DType) -> None:
    """ValueError unless all of them fit a tensor of so many elements of this format."""
    for index, word in overrides:
        if not 0 <= index < size:
            raise ValueError(f"override at {index} is outside {size} elements")
        if not 0 <= word <= d.top_word:
            raise ValueError(f"word {word:#x} does not fit {d.name}")


def exact(words: Words, d: DType) -> Exact:
    """An array's words as data."""
    return Exact(tuple(words.reshape(-1).tolist()), d.name)
