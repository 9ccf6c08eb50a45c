"""Defines what is known of a problem, whatever its format: records that the processes of a judgement exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuzz.errors import UsageError
from fuzz.judge.result.judgement import MACHINE, PROBLEM
from fuzz.model.dims import Size
from fuzz.model.recipes import Exact, Recipe

OWN, RANDOM = "own", "random"
"""How an argument's values are drawn: by the problem's own function only, or by any recipe as well."""


@dataclass(frozen=True)
class TensorSlot:
    """Stands for a tensor among the arguments of a call."""

    name: str


@dataclass(frozen=True)
class ArgumentDescription:
    """A tensor that a solution is given: its shape as expressions over dims, and its dtype in the problem.

    `domain` is OWN or RANDOM; `declared` is the recipe that makes what the problem itself makes, None where none does.
    `is_state` says that it is a parameter or a buffer of the module, no argument of the call, `is_buffer` that it is
    the latter.
    """

    shape: tuple[str, ...]
    dtype: str
    domain: str = RANDOM
    declared: Recipe | None = None
    is_state: bool = False
    is_buffer: bool = False


@dataclass(frozen=True)
class Variant:
    """Other dims, as pairs of a name and a size, and another dtype of floating numbers, that a problem states.

    Without a dtype every tensor has its own.
    """

    dims: tuple[tuple[str, int], ...]
    dtype: str = ""

    @property
    def text(self) -> str:
        return f"{self.dtype} {' '.join(f'{name}={size}' for name, size in self.dims)}".strip()


@dataclass(frozen=True)
class ProblemDescription:
    """What a problem's process says of it. `own_dims` are those that the problem states, `dims` those of the first
    cases, which are smaller where the own ones do not fit. `outputs` are the floating ones, none where their shapes do
    not follow from dims. `unvaried` are constants that give tensors their shape and are no dims all the same,
    with the reasons.
    `in_place` are arguments that the problem itself writes. `dot` is how precisely matrix products may multiply: ieee,
    or tf32 once the solution is seen to."""

    name: str
    sizes: tuple[Size, ...]
    own_dims: Mapping[str, int]
    dims: Mapping[str, int]
    arguments: Mapping[str, ArgumentDescription]
    outputs: Mapping[str, ArgumentDescription] = field(default_factory=dict)
    unvaried: Mapping[str, str] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    dot: str = "ieee"

    @property
    def stated_dtypes(self) -> frozenset[str]:
        """The dtypes that other variants of the problem have."""
        return frozenset(one.dtype for one in self.variants if one.dtype)

    def states(self, dims: Mapping[str, int]) -> bool:
        """Whether one of the variants has these dims."""
        return any({**self.dims, **dict(one.dims)} == {**self.dims, **dims} for one in self.variants)

    @property
    def unvaried_notes(self) -> list[str]:
        """A sentence for each constant that is no dim, with the reason."""
        return [f"could not be varied: {name}={self.dims[name]}, as {reason}" for name, reason in self.unvaried.items()]

    @property
    def is_scaled(self) -> bool:
        """Whether the problem's own dims did not fit."""
        return dict(self.dims) != dict(self.own_dims)


@dataclass(frozen=True)
class Setting:
    """What a solution is given beside tensors: the arguments of its constructor, and those of its call with slots."""

    construct: tuple[Any, ...] = ()
    call: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


class WordValues(Exact):
    """Exact values as an array of words, for tensors of any size; equal to nothing but itself."""

    __hash__ = object.__hash__

    def __init__(self, words: np.ndarray, dtype: str) -> None:
        object.__setattr__(self, "bits", words.reshape(-1))
        object.__setattr__(self, "dtype", dtype)

    def __eq__(self, other: object) -> bool:
        return self is other


class NotComparable(UsageError):
    """There is nothing that a solution of this problem could be compared with; the text is the reason."""

    cause = PROBLEM


class Unsupported(UsageError):
    """The problem or the solution needs something that cannot be run here; the text is the reason."""

    cause = PROBLEM


class UnsupportedHere(Unsupported):
    """This machine lacks what the problem or the solution needs; on another one they may run."""

    cause = MACHINE


def fill_slots(value: Any, tensors: Mapping[str, Any]) -> Any:
    """The value with tensors in the place of slots, in lists, tuples and dicts as well."""
    if isinstance(value, TensorSlot):
        return tensors[value.name]
    if isinstance(value, list | tuple):
        return type(value)(fill_slots(part, tensors) for part in value)
    if isinstance(value, dict):
        return {key: fill_slots(part, tensors) for key, part in value.items()}
    return value
