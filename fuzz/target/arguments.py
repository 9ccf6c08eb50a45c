"""Declares the arguments of a target: dims, tensors over them, and options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fuzz.errors import TargetError
from fuzz.escaping import clean_text
from fuzz.model.case import LARGEST_INTEGER, LEAST_INTEGER, Argument, Call, Scalar
from fuzz.model.dims import LONGEST_EXPRESSION, Size, evaluate
from fuzz.model.dtypes import DTYPES
from fuzz.model.layout import Layout
from fuzz.model.recipes import Values
from fuzz.target.shapes import (
    LONGEST_NAME,
    SHOWN,
    Dim,
    Shape,
    Sizes,
    check_dim_name,
    named_sizes,
    spell_out,
    whole_number,
)

Numbers = NDArray[Any]
"""Values as numbers that numpy calculates with."""


@dataclass(frozen=True)
class TensorArgument:
    """A tensor over named dims; `dtypes` in order of preference, the plain one first; empty means the target's.

    One that is `optional` may be None, one that is `contiguous` has no other strides. Elements of one that the launcher
    may write share no memory unless it is `overlapping`. Where `option` names an option, `chosen` has the shape for
    each of its choices. A kind of argument whose values have a meaning of their own, such as indices, is a subclass.
    """

    shape: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = field(default=(), compare=False)
    optional: bool = field(default=False, kw_only=True)
    contiguous: bool = field(default=False, kw_only=True)
    overlapping: bool = field(default=False, kw_only=True)
    others: tuple[Shape, ...] = field(default=(), kw_only=True)
    runs: tuple[Sizes, ...] = field(default=(), kw_only=True)
    option: str = field(default="", kw_only=True)
    chosen: tuple[tuple[Scalar, Shape], ...] = field(default=(), kw_only=True)

    fill: ClassVar[int] = 1
    """A number that is legal for every element."""

    def __or__(self, other: TensorArgument | None) -> Self:
        """The argument, which may be None as well, or of another shape: ``tensor(M, N) | tensor(N) | None``."""
        if other is None:
            return replace(self, optional=True)
        if replace(other, shape=self.shape, sizes=(), others=(), runs=(), optional=self.optional) != replace(
            self, sizes=(), others=(), runs=()
        ):
            raise TargetError("of one argument only the shape may be another one: tensor(M, N) | tensor(N)")
        shapes, runs = self.shapes + other.shapes, dict.fromkeys(self.runs + other.runs)
        optional = self.optional or other.optional
        return replace(self, sizes=self.sizes + other.sizes, others=shapes[1:], runs=tuple(runs), optional=optional)

    def __ror__(self, other: None) -> Self:
        return self.__or__(other)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All shapes that it may have, the plain one first."""
        return (self.shape, *self.others)

    @property
    def recipes(self) -> tuple[tuple[int, str], ...]:
        """(weight, name) of the recipes that its values are drawn from; empty where every recipe of the dtype fits."""
        return ()

    @property
    def drawn_parameters(self) -> Mapping[str, tuple[str, int, int]]:
        """For some of those recipes a parameter to draw: (name, least value, number of values)."""
        return {}

    @property
    def expressions(self) -> tuple[str, ...]:
        """All size expressions of the declaration."""
        return (*dict.fromkeys(text for shape in self.shapes for text in shape), *self.limits)

    @property
    def limits(self) -> tuple[str, ...]:
        """The size expressions that bound its values."""
        return ()

    def legal_shape(self, shape: Shape, options: Mapping[str, Scalar]) -> Shape:
        """The shape, or the one that these options ask for."""
        return dict(self.chosen).get(options[self.option], shape) if self.option else shape

    def legal_layout(self, layout: Layout, *, written: bool = False) -> Layout:
        """The layout, or the nearest one that the declaration allows of a tensor that the launcher may write or not."""
        if self.contiguous:
            return Layout(offset=layout.offset)
        return replace(layout, expand=()) if written and not self.overlapping else layout

    def legal_values(self, value: Argument, call: Call) -> Values:
        """The argument's values, changed as little as makes them legal for the dims and options of this call."""
        return value.values

    def plain_numbers(self, shape: tuple[int, ...], dims: Mapping[str, int]) -> Numbers:
        """Legal numbers in this shape, the simplest ones that there are at these dims."""
        return np.full(shape, self.fill)

    def invalid_values(self, numbers: Numbers, call: Call) -> Iterator[tuple[str, str, Numbers]]:
        """(name, what is wrong in words, numbers) of values that the declaration rules out, for legal ones in a call.

        `numbers` and the results have the argument's shape. Every number is legal for a plain tensor.
        """
        return iter(())

    def check(self, name: str, least: Mapping[str, int], options: Mapping[str, OptionArgument]) -> None:
        """TargetError where the declaration does not fit the smallest dims or the target's options."""
        if any(evaluate(text, least) < 0 for shape in self.shapes for text in shape):
            raise TargetError(f"argument {name!r} would have a negative size at the smallest dims")
        if self.option:
            choices = options[self.option].choices if self.option in options else ()
            if set(choices) != set(dict(self.chosen)):
                raise TargetError(
                    f"by_option({self.option!r}, ..) of {name!r} needs the shape for each choice: {choices}"
                )


@dataclass(frozen=True)
class OptionArgument:
    """A value drawn from `choices`, the default first."""

    choices: tuple[Scalar, ...]

    def as_written(self, name: str) -> OptionArgument:
        """The option with numbers of numpy as Python's. TargetError for a value that no entry can hold."""
        first = self.choices[0]
        if len(self.choices) == 1 and isinstance(first, list | tuple | set | frozenset | range):
            due = f"its choices are written without brackets: option({', '.join(map(repr, first))})"
            raise TargetError(f"argument {name!r} is an option of {first!r} alone; {due}")
        return replace(self, choices=tuple(plain_scalar(name, choice) for choice in self.choices))


def plain_scalar(name: str, choice: Any) -> Scalar:
    """The value of an option as an entry holds it: numbers of numpy as Python's. TargetError for what none can hold."""
    plain = choice.item() if isinstance(choice, np.generic) else choice
    if isinstance(choice, Enum):
        made = "give the member's name or value, and make it of that in the launcher"
        raise TargetError(f"argument {name!r} is an option of {type(choice).__name__}.{choice.name}: {made}")
    if plain is not None and type(plain) not in (bool, int, float, str):
        raise TargetError(f"argument {name!r} is an option of {choice!r}: bool, int, float, str or None is due")
    if type(plain) is int and not LEAST_INTEGER <= plain <= LARGEST_INTEGER:
        raise TargetError(f"argument {name!r} is an option of an integer of more than 64 bits, which no kernel takes")
    return plain  # type: ignore[no-any-return]


def check_writable(name: str, argument: object) -> None:
    """TargetError for an argument whose name or size expressions no entry can hold."""
    if not name.isidentifier() or len(name) > LONGEST_NAME:
        due = f"must be an identifier of at most {LONGEST_NAME} letters"
        raise TargetError(f"the name {clean_text(name, SHOWN)!r} of an argument {due}")
    for text in argument.expressions if isinstance(argument, TensorArgument) else ():
        if len(text) > LONGEST_EXPRESSION:
            due = f"at most {LONGEST_EXPRESSION} are due: give the dims shorter names"
            raise TargetError(f"argument {name!r} has a size expression of {len(text)} characters; {due}")


def size(name: str, low: int = 1, high: int = 1, *, multiple_of: int = 1) -> Size:
    """A named dim between low and high, both included. TargetError where no size is possible."""
    check_dim_name(name)
    low, high, multiple_of = (whole_number(number, f"size({name!r}, ..)") for number in (low, high, multiple_of))
    if low < 0 or multiple_of < 1 or high // multiple_of * multiple_of < low:
        raise TargetError(f"dim {name!r}: no multiple of {multiple_of} lies between {low} and {high}")
    return Size(name, low, high, multiple_of)


def tensor(
    *shape: Dim | Sizes, dtypes: str | Iterable[str] = (), contiguous: bool = False, overlapping: bool = False
) -> TensorArgument:
    """A tensor argument over named dims, with dtypes of its own where they differ from the target's.

    A dim ``N | 1`` is full or 1; `sizes(..)` among the dims stand for as many as there are in the call. An argument of
    `in_place` that is `overlapping` may have dims of stride 0.
    """
    plain, *others = spell_out(shape)
    runs = tuple(dim for dim in shape if isinstance(dim, Sizes))
    return TensorArgument(
        plain, known_dtypes(dtypes), named_sizes(shape), contiguous=contiguous, overlapping=overlapping,
        others=tuple(others), runs=runs,
    )  # fmt: skip


def by_option(name: str, shapes: Mapping[Scalar, TensorArgument]) -> TensorArgument:
    """A tensor whose shape an option decides: ``by_option("reduction", {"none": tensor(N), "mean": tensor()})``."""
    if not shapes or any(value.others or value.option for value in shapes.values()):
        raise TargetError(f"by_option({name!r}, ..) takes one shape for each choice")
    first, *more = shapes.values()
    for value in more:
        first = first | value
    chosen = tuple((choice, value.shape) for choice, value in shapes.items())
    return replace(first, option=name, chosen=chosen)


def option(*choices: Scalar) -> OptionArgument:
    """An option drawn from these values, the default first."""
    if not choices:
        raise TargetError("option() needs at least one value")
    return OptionArgument(choices)


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names of which a single one may stand alone."""
    return (names,) if isinstance(names, str) else tuple(names)


def known_dtypes(dtypes: str | Iterable[str]) -> tuple[str, ...]:
    """The names, in order. TargetError for a dtype that is unknown, or none of the names."""
    for name in (names_in_order := listed(dtypes) if isinstance(dtypes, Iterable) else (dtypes,)):
        if not isinstance(name, str):
            hint = f': write "{name}"'.replace("torch.", "") if f"{name}".startswith("torch.") else ""
            raise TargetError(f"a dtype is given by its name, and not as {name!r}{hint}")
        if name not in DTYPES:
            raise TargetError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return names_in_order
