"""Defines a case: one complete input as data, frozen and without tensors, in a total order of simplicity.

A case names sizes (dims), and for every argument its dtype, layout and values: a recipe, or exact bits. Usually it is
one call; a short sequence of calls where the state between them is the question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from fuzz.model.dims import names, resolve
from fuzz.model.dtypes import Bits, exponent, significant_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import Exact, Patched, Recipe, Values, bits_of

Scalar = bool | int | float | str | None
LEAST_INTEGER, LARGEST_INTEGER = -(1 << 63), (1 << 64) - 1
"""The integers that an option may be."""
SEED_STRIDE = 1 << 16
"""From one replica's seeds to the next one's: more than any seed that is drawn."""
MAX_MATERIALISED = 1 << 12
"""Tensors of at most this many stored elements are compared by their bits, larger ones by their recipe."""


@dataclass(frozen=True)
class Argument:
    """One tensor argument. `shape` holds expressions over dims; bits are those of the layout's stored shape."""

    shape: tuple[str, ...]
    dtype: str
    values: Values
    layout: Layout = CONTIGUOUS

    @property
    def is_float(self) -> bool:
        return named_dtype(self.dtype).is_float

    def bits(self, dims: Mapping[str, int]) -> Bits:
        """The exact bits, an array of unsigned integers of the stored shape; read only."""
        return materialise(self.values, self.stored_shape(dims), self.dtype)

    def reseed(self, number: int) -> Argument:
        """The same in replica `number` of a plan: a recipe with another seed; values that are listed stay."""
        values = self.values
        if isinstance(values, Recipe):
            values = values.reseed(values.seed + number * SEED_STRIDE)
        return Argument(self.shape, self.dtype, values, self.layout)

    def stored_shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of the distinct elements: expanded dims hold one."""
        return self.layout.stored(resolve(self.shape, dims))

    def uses(self, dim: str) -> bool:
        """Whether the shape depends on a dim."""
        return any(dim in names(text) for text in self.shape)


@dataclass(frozen=True)
class Split:
    """Rows start .. start + length of the batch, computed again with other rows before and after them."""

    start: int
    length: int
    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class LaunchOptions:
    """What decides a launch besides the arguments: None leaves it to the launcher and its device.

    `config` is the index of the configuration that autotuners take, modulo the number that pruning leaves.
    `multiprocessor_count` and `max_shared_mem` (bytes) are properties that a simulated device reports.
    `reduction_order` is the seed of the order in which a simulated device combines the elements of a sum; only reruns
    of oracles have it, and no saved case.
    """

    config: int | None = None
    multiprocessor_count: int | None = None
    max_shared_mem: int | None = None
    reduction_order: int | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, int]:
        """The options that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=True)
class Call:
    """One call of the launcher. Dims and arguments stand in the order in which the target declares them.

    A declared argument that is not among them is None.
    """

    dims: Mapping[str, int]
    arguments: Mapping[str, Argument]
    options: Mapping[str, Scalar] = field(default_factory=dict)
    cotangents: Mapping[str, Argument] = field(default_factory=dict)
    launch: LaunchOptions | None = None

    @property
    def tensors(self) -> Mapping[str, Argument]:
        """Arguments, then cotangents under the name ``grad NAME``."""
        return {**self.arguments, **{f"grad {name}": value for name, value in self.cotangents.items()}}

    def shape(self, name: str) -> tuple[int, ...]:
        return resolve(self.tensors[name].shape, self.dims)

    def elements(self) -> int:
        """Total elements of all tensors."""
        return sum(math.prod(self.shape(name)) for name in self.tensors)

    def with_argument(self, name: str, value: Argument) -> Call:
        if name.startswith("grad "):
            return replace(self, cotangents={**self.cotangents, name.removeprefix("grad "): value})
        return replace(self, arguments={**self.arguments, name: value})

    def without_argument(self, name: str) -> Call:
        """The call in which an argument is None."""
        return replace(self, arguments={key: value for key, value in self.arguments.items() if key != name})

    @property
    def structure(self) -> tuple[object, ...]:
        """What replicas of a call have in common: everything but values and orders."""
        tensors = tuple((name, value.shape, value.dtype, value.layout) for name, value in self.tensors.items())
        launch = replace(self.launch or LaunchOptions(), reduction_order=None)
        return tuple(self.dims.items()), tensors, tuple(self.options.items()), launch

    def key(self) -> tuple[object, ...]:
        """A hashable value that is equal for equal calls."""
        parts = tuple(tuple(part.items()) for part in (self.dims, self.arguments, self.options, self.cotangents))
        return parts if self.launch is None else (*parts, self.launch)


@dataclass(frozen=True)
class Case:
    """A target's name, its calls in order, and the split that the invariance oracle looks at, if any.

    With `shares_integers`, replicas of it differ in floating tensors alone.
    """

    target: str
    calls: tuple[Call, ...]
    split: Split | None = None
    shares_integers: bool = field(default=False, compare=False)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A hashable value that is equal for equal cases."""
        return (self.target, tuple(call.key() for call in self.calls), self.split)

    @property
    def last(self) -> Call:
        return self.calls[-1]

    def elements(self) -> int:
        """Total elements of all tensors of all calls."""
        return sum(call.elements() for call in self.calls)

    def has_huge_stride(self) -> bool:
        """Whether an offset into some tensor needs more than 32 bits, or nearly so, though it has few elements."""
        return any(value.layout.reach for call in self.calls for value in call.tensors.values())

    def replica(self, number: int) -> Case:
        """The same plan with other seeds; number 0 is the case itself. Values that are listed stay."""
        if not number:
            return self
        return Case(self.target, tuple(self._reseed(call, number) for call in self.calls), self.split)

    def after(self, count: int) -> Case:
        """The plan whose first replica is the one after the first `count` of this one."""
        return replace(self.replica(count), shares_integers=self.shares_integers)

    def shares(self, value: Argument) -> bool:
        """Whether replicas of this plan share the values of an argument."""
        return self.shares_integers and not value.is_float

    def _reseed(self, call: Call, number: int) -> Call:
        arguments, cotangents = (
            {name: old if self.shares(old) else old.reseed(number) for name, old in part.items()}
            for part in (call.arguments, call.cotangents)
        )
        return Call(call.dims, arguments, call.options, cotangents, call.launch)

    def with_call(self, index: int, call: Call) -> Case:
        return replace(self, calls=(*self.calls[:index], call, *self.calls[index + 1 :]))


@dataclass(frozen=True)
class ListedPlan(Case):
    """A plan whose replicas are given: cases of one call each that differ in their values alone. It has the first's."""

    listed: tuple[Case, ...] = ()

    @staticmethod
    def of(cases: Sequence[Case]) -> ListedPlan:
        first = cases[0]
        return ListedPlan(first.target, first.calls, first.split, listed=tuple(cases))

    def replica(self, number: int) -> Case:
        return self.listed[number]

    def after(self, count: int) -> Case:
        return ListedPlan.of(self.listed[count:])


def materialise(values: Values, shape: tuple[int, ...], dtype: str) -> Bits:
    """The bits of these values for a stored shape, read only. ValueError where exact bits do not fill it."""
    if math.prod(shape) <= MAX_MATERIALISED:
        return _materialise_small(values, shape, dtype)
    return bits_of(values, shape, named_dtype(dtype))


@lru_cache(maxsize=256)
def _materialise_small(values: Values, shape: tuple[int, ...], dtype: str) -> Bits:
    bits = bits_of(values, shape, named_dtype(dtype))
    bits.flags.writeable = False
    return bits


def first_floating(arguments: Mapping[str, Argument]) -> str:
    """The name of the argument in whose dtype cotangents are drawn, as most outputs have it; empty if none floats."""
    return next((name for name, value in arguments.items() if value.is_float), "")


def sort_key(case: Case, defaults: Mapping[str, object]) -> tuple[object, ...]:
    """A key that orders cases from simple to complicated; a total order.

    `defaults` maps arguments to their plain dtype and options to their default. The key compares, one after the other:
    calls, total elements, dims in declared order, ranks, arguments off the default layout, dtype or option, splits,
    then of the values non-zeros, significant bits, distance of exponents from 0, negative values, exact bits.
    """
    return (
        len(case.calls),
        case.elements(),
        tuple(size for call in case.calls for size in call.dims.values()),
        sum(len(value.shape) for call in case.calls for value in call.tensors.values()),
        sum(_off_default(call, defaults) for call in case.calls),
        _split_key(case.split),
        *values_key(case),
        tuple(_complexity(call, defaults) for call in case.calls),
    )


def values_key(case: Case) -> tuple[object, ...]:
    """The part of sort_key that compares values."""
    nonzeros = bits = exponents = negatives = 0
    patterns: list[tuple[object, ...]] = []
    for argument, dims in _arguments(case):
        if math.prod(argument.stored_shape(dims)) > MAX_MATERIALISED:
            patterns.append((1, _recipe_key(argument.values)))
            nonzeros += 0 if isinstance(argument.values, Recipe) and argument.values.name == "zeros" else 1 << 40
            continue
        elements = argument.bits(dims).reshape(-1)
        counts = measure(elements.tobytes(), argument.dtype)
        nonzeros, bits = nonzeros + counts[0], bits + counts[1]
        exponents, negatives = exponents + counts[2], negatives + counts[3]
        patterns.append((0, tuple(elements.tolist())))
    return (nonzeros, bits, exponents, negatives, tuple(patterns))


@lru_cache(maxsize=4096)
def measure(data: bytes, dtype: str) -> tuple[int, int, int, int]:
    """(non-zeros, significant bits, sum of |exponent|, negative values) of bit patterns in memory."""
    kind = named_dtype(dtype)
    patterns = np.frombuffer(data, dtype=kind.unsigned)
    significant = significant_bits(patterns, kind)
    present = significant > 0
    powers = np.abs(exponent(patterns[present], kind))
    negatives = int((patterns >= kind.sign_mask).sum()) if kind.sign_mask else 0
    return int(present.sum()), int(significant.sum()), int(powers.sum()), negatives


def _arguments(case: Case) -> Iterator[tuple[Argument, Mapping[str, int]]]:
    for call in case.calls:
        for argument in call.tensors.values():
            yield argument, call.dims


def _off_default(call: Call, defaults: Mapping[str, object]) -> int:
    layouts = sum(argument.layout != CONTIGUOUS for argument in call.tensors.values())
    dtypes = sum(argument.dtype != defaults.get(name, argument.dtype) for name, argument in call.tensors.items())
    options = sum(value != defaults.get(name, value) for name, value in call.options.items())
    return layouts + dtypes + options + len(call.launch.as_dict() if call.launch else ())


def _complexity(call: Call, defaults: Mapping[str, object]) -> tuple[object, ...]:
    """Breaks ties between equally many departures from the default, so that the order is total."""
    layouts = tuple(
        (value.layout.reach, value.layout.order, len(value.layout.expand), value.layout.expand)
        + (value.layout.pad, value.layout.offset, value.layout.step)
        for value in call.tensors.values()
    )
    dtypes = tuple(value.dtype for value in call.tensors.values())
    launch = tuple(call.launch.as_dict().items()) if call.launch else ()
    shapes = tuple(value.shape for value in call.tensors.values())
    return (layouts, dtypes, tuple(str(value) for value in call.options.values()), launch, shapes)


def _split_key(split: Split | None) -> tuple[int, ...]:
    if split is None:
        return ()
    return (split.before + split.after, split.length, split.start, split.before)


def _recipe_key(values: Values) -> tuple[object, ...]:
    if isinstance(values, Exact):
        return (9, tuple(values.bits))
    if isinstance(values, Patched):
        return (8, len(values.overrides), *_recipe_key(values.recipe), values.overrides)
    return (values.kind.simplicity, values.name, tuple(map(str, values.params)), values.seed, values.version)
