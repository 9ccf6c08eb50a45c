"""Edits: Case -> a case that differs in one thing, for engines that vary what they have.

Each edit takes a case of the target at hand, draws from a random number generator, and returns a case or None where
it does not apply. `edited` makes the result legal and keeps its size within limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType, from_bits, neighbours
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Exact, Patched, Recipe, Values, recipe
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.strategies import draw_indices, draw_layout, draw_locations, draw_recipe, draw_split
from fuzz.target.indices import legal
from fuzz.target.spec import Target, TensorArgument

LARGEST = 1 << 17
"""Elements of the largest tensor that an edit may make."""
USUAL = 1 << 12
"""Elements to which the other dims are brought down where one is made large."""
PATCHES = 16
"""Bits of one tensor that may be overridden."""
CONSTANTS = 8
"""Constants that a recipe takes."""


@dataclass(frozen=True)
class Workshop:
    """What edits work with."""

    target: Target
    dictionary: Dictionary
    random: Random

    def spec(self, name: str) -> TensorArgument:
        """The declaration of an argument or cotangent."""
        return self.target.tensors.get(name) or self.target.cotangents[name.removeprefix("grad ")]

    def free(self, call: Call) -> list[str]:
        """The tensors whose values may be anything."""
        return [name for name in call.tensors if not (self.spec(name).below or self.spec(name).grids)]


Edit = Callable[[Case, Workshop], Case | None]


def edited(case: Case, shop: Workshop, edits: Sequence[Edit], count: int) -> Case:
    """The case after so many edits drawn from these; those that do not apply are left out."""
    for _ in range(count):
        made = shop.random.choice(edits)(case, shop)
        if made is not None:
            case = legal(made, shop.target)
    return case


# ---------------------------------------------------------------- dims


def step_dim(case: Case, shop: Workshop) -> Case | None:
    """A dim one step, or a factor of two, larger or smaller, or up to four times another one."""
    if not shop.target.sizes:
        return None
    dim, dims = shop.random.choice(shop.target.sizes), case.last.dims
    size = dims[dim.name]
    choices = [size + 1, size - 1, 2 * size, size // 2, 1 << size.bit_length()]
    if len(dims) > 1 and shop.random.random() < 0.4:
        other = shop.random.choice([size for name, size in dims.items() if name != dim.name])
        choices = [factor * other + step for factor in (1, 1, 2, 3, 4) for step in (0, 0, 1, -1)]
    size = shop.random.choice(choices)
    return resized(case, shop, dim.name, dim.clamp(size))


def known_dim(case: Case, shop: Workshop) -> Case | None:
    """A dim at a number of the dictionary, or beside it."""
    choices = [(dim.name, size) for dim in shop.target.sizes for size in shop.dictionary.sizes(dim)]
    return resized(case, shop, *shop.random.choice(choices)) if choices else None


def resized(case: Case, shop: Workshop, name: str, size: int) -> Case | None:
    """The case with one dim of its last call set; the others become small where its tensors would be large."""
    call, random = case.last, shop.random
    if call.dims[name] == size:
        return None
    dims, most = {**call.dims, name: size}, random.choice((USUAL, USUAL, LARGEST // 4))
    for dim in sorted(shop.target.sizes, key=lambda dim: -dims[dim.name]):
        if dim.name != name and largest(call, dims) > most:
            dims[dim.name] = dim.clamp(min(dims[dim.name], 1 + random.randrange(3)))
    if largest(call, dims) > LARGEST:
        return None
    arguments = {key: refitted(value, dims) for key, value in call.arguments.items()}
    cotangents = {key: refitted(value, dims) for key, value in call.cotangents.items()}
    return resplit(with_last(case, replace(call, dims=dims, arguments=arguments, cotangents=cotangents)), shop)


def largest(call: Call, dims: Mapping[str, int]) -> int:
    return max((math.prod(resolve(value.shape, dims)) for value in call.tensors.values()), default=0)


def refitted(value: Argument, dims: Mapping[str, int]) -> Argument:
    """The argument with as many bits as it has elements at these dims."""
    shape = resolve(value.shape, dims)
    count = math.prod(value.layout.stored(shape))
    layout = value.layout
    if layout.reach and not 3 <= shape[0] <= 4:
        layout = replace(layout, reach=0)
    return replace(value, values=cut(value.values, count), layout=layout)


def cut(values: Values, count: int) -> Values:
    if isinstance(values, Patched):
        kept = tuple(pair for pair in values.overrides if pair[0] < count)
        return Patched(values.recipe, kept) if kept else values.recipe
    if isinstance(values, Exact) and len(values.bits) != count:
        some = values.bits or (0,)
        return Exact((some * (count // len(some) + 1))[:count], values.dtype)
    return values


def resplit(case: Case, shop: Workshop) -> Case:
    """A split that the batch no longer has room for is drawn anew."""
    if case.split is None:
        return case
    rows = case.last.dims[shop.target.batch or next(iter(shop.target.rows.values()))]
    fits = case.split.start + case.split.length <= rows
    return case if fits else replace(case, split=draw_split(shop.random.randrange, rows))


# ---------------------------------------------------------------- what an argument is


def other_dtype(case: Case, shop: Workshop) -> Case | None:
    """One tensor, or all of them, in another dtype; bits that were listed are made by a recipe again."""
    call, random = case.last, shop.random
    names = list(call.arguments)
    spec = shop.spec(random.choice(names))
    dtype = random.choice(spec.dtypes)
    chosen = names if random.random() < 0.7 else [random.choice(names)]
    for name in chosen:
        value = call.arguments[name]
        if dtype in shop.spec(name).dtypes and value.dtype != dtype:
            call = call.with_argument(name, replace(value, dtype=dtype, values=plain(value, name, dtype, shop)))
    return with_last(case, call) if call is not case.last else None


def plain(value: Argument, name: str, dtype: str, shop: Workshop) -> Values:
    """Values that suit another dtype."""
    made = value.values.recipe if isinstance(value.values, Patched) else value.values
    suits = isinstance(made, Recipe) and named_dtype(dtype).kind in made.kind.fits
    return made if suits else drawn(name, dtype, shop)


def drawn(name: str, dtype: str, shop: Workshop) -> Recipe:
    spec, draw = shop.spec(name), shop.random.randrange
    if spec.below:
        return draw_indices(draw, spec)
    return draw_locations(draw) if spec.grids else draw_recipe(draw, shop.target, name, dtype)


def other_layout(case: Case, shop: Workshop) -> Case | None:
    """One tensor in another layout."""
    name = shop.random.choice(list(case.last.tensors))
    value = case.last.tensors[name]
    layout = draw_layout(shop.random.randrange, case.last.shape(name))
    return with_last(case, case.last.with_argument(name, refitted(replace(value, layout=layout), case.last.dims)))


def other_option(case: Case, shop: Workshop) -> Case | None:
    """One option at another of its choices."""
    options = [(name, choice) for name, one in shop.target.options.items() for choice in one.choices]
    if not options:
        return None
    name, choice = shop.random.choice(options)
    return with_last(case, replace(case.last, options={**case.last.options, name: choice}))


def other_split(case: Case, shop: Workshop) -> Case | None:
    """Another part of the batch to compute alone."""
    if not (shop.target.batch or shop.target.rows):
        return None
    rows = case.last.dims[shop.target.batch or next(iter(shop.target.rows.values()))]
    return replace(case, split=draw_split(shop.random.randrange, rows))


def fewer_calls(case: Case, shop: Workshop) -> Case | None:
    """The last call alone."""
    return replace(case, calls=case.calls[-1:]) if len(case.calls) > 1 else None


# ---------------------------------------------------------------- values


def other_recipe(case: Case, shop: Workshop) -> Case | None:
    """One tensor made by another recipe."""
    name = shop.random.choice(list(case.last.tensors))
    value = case.last.tensors[name]
    return revalued(case, name, drawn(name, value.dtype, shop))


def other_seed(case: Case, shop: Workshop) -> Case | None:
    """One tensor's recipe with another seed, or one parameter of it anywhere in its range."""
    name = shop.random.choice(list(case.last.tensors))
    made = case.last.tensors[name].values
    if not isinstance(made, Recipe):
        return None
    limits = dict(made.kind.params) if name in shop.free(case.last) else {}
    if not limits or shop.random.random() < 0.3:
        return revalued(case, name, replace(made, seed=shop.random.randrange(1 << 16)))
    key = shop.random.choice(list(limits))
    low, high = limits[key]
    given = int(dict(made.params)[key])
    near = min(max(given + shop.random.choice((-2, -1, 1, 2)), low), high)
    new = near if shop.random.random() < 0.6 else shop.random.randint(low, high)
    return revalued(case, name, replace(made, params=tuple((k, new if k == key else v) for k, v in made.params)))


def twin_values(case: Case, shop: Workshop) -> Case | None:
    """One tensor with the values of another one of its kind."""
    names = shop.free(case.last)
    if len(names) < 2:
        return None
    name, other = shop.random.sample(names, 2)
    mine, theirs = case.last.tensors[name], case.last.tensors[other]
    alike = (mine.shape, mine.dtype, mine.layout) == (theirs.shape, theirs.dtype, theirs.layout)
    permitted = name in shop.target.nonfinite or other not in shop.target.nonfinite
    return revalued(case, name, theirs.values) if alike and permitted else None


def known_values(case: Case, shop: Workshop) -> Case | None:
    """One tensor with values at and beside numbers of the dictionary."""
    names = [name for name in shop.free(case.last) if case.last.tensors[name].is_float]
    if not names:
        return None
    name = shop.random.choice(names)
    d = named_dtype(case.last.tensors[name].dtype)
    centres = shop.dictionary.centres(d)
    if not centres:
        return None
    some = shop.random.sample(centres, min(len(centres), shop.random.choice((1, 2, CONSTANTS))))
    numbers = {f"c{index}": value_of(pattern, d) for index, pattern in enumerate(some)}
    how = dict(spread=shop.random.choice((0, 1)), builtin=0)
    return revalued(case, name, recipe("boundaries", shop.random.randrange(1 << 16), **how, **numbers))


def patch(case: Case, shop: Workshop) -> Case | None:
    """One to three bits of one tensor: numbers of the dictionary, special values, neighbours and copies of others."""
    names = shop.free(case.last)
    if not names:
        return None
    name = shop.random.choice(names)
    value = case.last.tensors[name]
    count = math.prod(value.layout.stored(case.last.shape(name)))
    if not count or count > USUAL or isinstance(value.values, Exact):
        return None
    made, overrides = opened(value.values)
    bits, d = value.bits(case.last.dims).reshape(-1), named_dtype(value.dtype)
    for _ in range(shop.random.choice((1, 1, 2, 3))):
        place = shop.random.choice((0, count - 1, shop.random.randrange(count)))
        pattern = new_pattern(int(bits[place]), int(bits[place - 1]), int(shop.random.choice(bits)), d, shop)
        if finite(pattern, d) or name in shop.target.nonfinite:
            overrides[place] = pattern
    kept = sorted(overrides.items())[:PATCHES]
    return revalued(case, name, Patched(made, tuple(kept))) if kept else None


def opened(values: Recipe | Patched) -> tuple[Recipe, dict[int, int]]:
    """A recipe, and the bits that stand in the place of what it makes."""
    return (values, {}) if isinstance(values, Recipe) else (values.recipe, dict(values.overrides))


def new_pattern(pattern: int, before: int, any_other: int, d: DType, shop: Workshop) -> int:
    """A pattern in the place of one, given the one before it and any other one."""
    random = shop.random
    kind = random.randrange(6)
    if kind == 0 and (known := shop.dictionary.patterns(d)):
        return random.choice(known)
    if kind == 1:
        return random.choice((before, any_other, 0, d.one_bits))
    if kind == 2 and d.is_float:
        return random.choice((0, 1, 1 << d.mantissa, d.largest_bits, d.one_bits)) | random.choice((0, d.sign_mask))
    if kind == 3 and d.is_float:
        return random.randrange(d.inf_bits) | random.choice((0, d.sign_mask))
    if kind == 4 and d.kind != "bool" and (near := neighbours(pattern, 2, d)):
        return random.choice(near)  # A NaN has none.
    return (pattern ^ (1 << random.randrange(d.bits))) & d.max_bits if d.kind != "bool" else 1 - pattern


def finite(pattern: int, d: DType) -> bool:
    return not d.is_float or (pattern & (d.sign_mask - 1)) < d.inf_bits


def value_of(pattern: int, d: DType) -> float:
    return float(from_bits(pattern, d))


def revalued(case: Case, name: str, values: Values) -> Case:
    value = case.last.tensors[name]
    return with_last(case, case.last.with_argument(name, replace(value, values=values)))


def with_last(case: Case, call: Call) -> Case:
    return case.with_call(len(case.calls) - 1, call)


KNOWN: tuple[Edit, ...] = (known_dim, known_values, patch)
"""Edits that bring in the dictionary."""
EDITS: tuple[Edit, ...] = (
    *(step_dim, step_dim, known_dim, other_dtype, other_layout, other_layout, other_option, other_option, other_split),
    *(fewer_calls, other_recipe, other_recipe, other_seed, other_seed, twin_values, known_values, patch, patch, patch),
)
"""All edits, those that do most more often."""
