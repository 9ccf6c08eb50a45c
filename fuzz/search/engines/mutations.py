"""Mutates cases: each mutation makes a case that differs in one thing, for engines that vary what they have.

A mutation takes a case of the target at hand, draws from a random number generator, and returns a case, or None where
it does not apply. `mutate` makes the result legal and keeps its size within limits.
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
from fuzz.model.edit import base_recipe, largest_tensor, with_argument, with_option, with_values
from fuzz.model.recipes import Exact, Patched, Recipe, Values, patched, recipe
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.strategies import draw_argument, draw_layout, draw_shape, draw_split, draw_values, fits_beside
from fuzz.target.arguments import TensorArgument
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target, ranks_of

MAX_TENSOR = 1 << 17
"""Elements of the largest tensor that a mutation may make."""
USUAL_TENSOR = 1 << 12
"""Elements to which the other dims are brought down where one is made large."""
MAX_OVERRIDES = 16
"""Elements of one tensor that may be overridden."""
MAX_CONSTANTS = 8
"""Constants that a recipe takes."""


@dataclass(frozen=True)
class MutationContext:
    """What mutations draw from: the target's declaration, the numbers of its code, and random numbers."""

    target: Target
    dictionary: Dictionary
    random: Random

    def declared(self, name: str) -> TensorArgument:
        """The declaration of an argument or cotangent."""
        return self.target.tensors.get(name) or self.target.cotangents[name.removeprefix("grad ")]

    def free(self, call: Call) -> list[str]:
        """The tensors whose values may be anything."""
        return [name for name in call.tensors if not self.declared(name).recipes]


Mutation = Callable[[Case, MutationContext], Case | None]


def mutate(case: Case, context: MutationContext, mutations: Sequence[Mutation], count: int) -> Case:
    """The case after so many mutations drawn from these; those that do not apply are left out."""
    for _ in range(count):
        mutated = context.random.choice(mutations)(case, context)
        if mutated is not None:
            case = make_legal(mutated, context.target)
    return case


# ---------------------------------------------------------------- dims


def step_dim(case: Case, context: MutationContext) -> Case | None:
    """A dim one step, or a factor of two, larger or smaller, or up to four times another one."""
    if not context.target.sizes:
        return None
    dim, dims = context.random.choice(context.target.sizes), case.last.dims
    size = dims[dim.name]
    choices = [size + dim.multiple, size - dim.multiple, 2 * size, size // 2, 1 << size.bit_length()]
    if len(dims) > 1 and context.random.random() < 0.4:
        other = context.random.choice([size for name, size in dims.items() if name != dim.name])
        choices = [factor * other + step for factor in (1, 1, 2, 3, 4) for step in (0, 0, 1, -1)]
    size = context.random.choice(choices)
    return set_dim(case, context, dim.name, dim.clamp(size))


def known_dim(case: Case, context: MutationContext) -> Case | None:
    """A dim at a number of the dictionary, or beside it."""
    choices = [(dim.name, size) for dim in context.target.sizes for size in context.dictionary.sizes(dim)]
    return set_dim(case, context, *context.random.choice(choices)) if choices else None


def set_dim(case: Case, context: MutationContext, name: str, size: int) -> Case | None:
    """The case with one dim of its last call set; the others become small where its tensors would be large."""
    call, random = case.last, context.random
    if call.dims[name] == size:
        return None
    dims, most = {**call.dims, name: size}, random.choice((USUAL_TENSOR, USUAL_TENSOR, MAX_TENSOR // 4))
    for dim in sorted(context.target.sizes, key=lambda dim: -dims[dim.name]):
        if dim.name != name and largest_tensor(call, dims) > most:
            dims[dim.name] = dim.clamp(min(dims[dim.name], 1 + random.randrange(3)))
    return with_dims(case, context, len(case.calls) - 1, dims)


def with_dims(case: Case, context: MutationContext, index: int, dims: Mapping[str, int]) -> Case | None:
    """The case with these dims in one of its calls; None where a tensor, or a result, would be too large."""
    call = case.calls[index]
    if largest_tensor(call, dims) > MAX_TENSOR or not fits_beside(context.target, dims):
        return None
    arguments = {key: fit_argument(value, dims) for key, value in call.arguments.items()}
    cotangents = {key: fit_argument(value, dims) for key, value in call.cotangents.items()}
    resized = replace(call, dims=dims, arguments=arguments, cotangents=cotangents)
    return redraw_split(case.with_call(index, resized), context)


def fit_argument(value: Argument, dims: Mapping[str, int]) -> Argument:
    """The argument with as many values as it has elements at these dims, and no huge layout that these rule out."""
    layout = value.layout
    if layout.reach and not 3 <= resolve(value.shape, dims)[0] <= 4:
        layout = replace(layout, reach=0)
    return replace(value, values=fit_values(value.values, math.prod(value.stored_shape(dims))), layout=layout)


def fit_values(values: Values, count: int) -> Values:
    """The values for so many elements: overrides beyond them are dropped, exact values repeated."""
    if isinstance(values, Patched):
        kept = tuple(override for override in values.overrides if override[0] < count)
        return patched(values.recipe, kept)
    if isinstance(values, Exact) and len(values.bits) != count:
        bits = values.bits or (0,)
        return Exact((bits * (count // len(bits) + 1))[:count], values.dtype)
    return values


def redraw_split(case: Case, context: MutationContext) -> Case:
    """A split that the batch no longer has room for is drawn anew."""
    if case.split is None or context.target.batch_dim is None:
        return case
    rows = case.last.dims[context.target.batch_dim]
    fits = case.split.start + case.split.length <= rows
    return case if fits else replace(case, split=draw_split(context.random.randrange, rows))


# ---------------------------------------------------------------- dtypes, layouts, options


def other_dtype(case: Case, context: MutationContext) -> Case | None:
    """One tensor, or all of them, in another dtype; values that were listed are made by a recipe again."""
    call, random = case.last, context.random
    names = list(call.arguments)
    dtype = random.choice(context.declared(random.choice(names)).dtypes)
    chosen = names if random.random() < 0.7 else [random.choice(names)]
    for name in chosen:
        value = call.arguments[name]
        if dtype in context.declared(name).dtypes and value.dtype != dtype:
            values = values_for_dtype(value, name, dtype, context)
            call = call.with_argument(name, replace(value, dtype=dtype, values=values))
    return case.with_call(len(case.calls) - 1, call) if call is not case.last else None


def values_for_dtype(value: Argument, name: str, dtype: str, context: MutationContext) -> Values:
    """The argument's recipe where it fits another dtype, else one that is drawn."""
    values = base_recipe(value.values)
    fits = values is not None and named_dtype(dtype).kind in values.kind.fits
    return values if values is not None and fits else random_values(name, dtype, context)


def random_values(name: str, dtype: str, context: MutationContext) -> Recipe:
    return draw_values(context.random.randrange, context.target, name, context.declared(name), dtype)


def other_layout(case: Case, context: MutationContext) -> Case | None:
    """One tensor in another layout."""
    name = context.random.choice(list(case.last.tensors))
    layout = draw_layout(context.random.randrange, case.last.shape(name))
    value = fit_argument(replace(case.last.tensors[name], layout=layout), case.last.dims)
    return with_argument(case, -1, name, value)


def other_option(case: Case, context: MutationContext) -> Case | None:
    """One option at another of its choices, or an argument that may be None the other way."""
    options = [(name, choice) for name, option in context.target.options.items() for choice in option.choices]
    optional = [(name, None) for name, declared in context.target.tensors.items() if declared.optional]
    if not options and not optional:
        return None
    name, choice = context.random.choice([*options, *optional])
    return (
        toggle_argument(case, context, name) if name in context.target.tensors else with_option(case, -1, name, choice)
    )


def toggle_argument(case: Case, context: MutationContext, name: str) -> Case:
    """The case with an argument that may be None the other way."""
    call, target = case.last, context.target
    if name in call.arguments:
        return case.with_call(len(case.calls) - 1, call.without_argument(name))
    declared, draw = target.tensors[name], context.random.randrange
    ranks = ranks_of(call, target)
    value = draw_argument(draw, target, name, draw_shape(draw, declared, ranks), call.dims, declared.dtypes[0])
    given = {**call.arguments, name: fit_argument(value, call.dims)}
    call = replace(call, arguments={key: given[key] for key in target.tensors if key in given})
    return case.with_call(len(case.calls) - 1, call)


def other_split(case: Case, context: MutationContext) -> Case | None:
    """Another part of the batch to compute alone."""
    if context.target.batch_dim is None:
        return None
    return replace(case, split=draw_split(context.random.randrange, case.last.dims[context.target.batch_dim]))


def last_call_alone(case: Case, context: MutationContext) -> Case | None:
    """The last call without the earlier ones."""
    return replace(case, calls=case.calls[-1:]) if len(case.calls) > 1 else None


# ---------------------------------------------------------------- values


def other_recipe(case: Case, context: MutationContext) -> Case | None:
    """One tensor made by another recipe."""
    name = context.random.choice(list(case.last.tensors))
    return with_values(case, -1, name, random_values(name, case.last.tensors[name].dtype, context))


def other_seed(case: Case, context: MutationContext) -> Case | None:
    """One tensor's recipe with another seed, or one parameter of it anywhere in its range."""
    random = context.random
    name = random.choice(list(case.last.tensors))
    values = case.last.tensors[name].values
    if not isinstance(values, Recipe):
        return None
    limits = dict(values.kind.params) if name in context.free(case.last) else {}
    if not limits or random.random() < 0.3:
        return with_values(case, -1, name, replace(values, seed=random.randrange(1 << 16)))
    key = random.choice(list(limits))
    low, high = limits[key]
    near = min(max(int(dict(values.params)[key]) + random.choice((-2, -1, 1, 2)), low), high)
    number = near if random.random() < 0.6 else random.randint(low, high)
    params = tuple((other, number if other == key else value) for other, value in values.params)
    return with_values(case, -1, name, replace(values, params=params))


def copied_values(case: Case, context: MutationContext) -> Case | None:
    """One tensor with the values of another one of its kind."""
    names = context.free(case.last)
    if len(names) < 2:
        return None
    name, other = context.random.sample(names, 2)
    value, source = case.last.tensors[name], case.last.tensors[other]
    same_form = (value.shape, value.dtype, value.layout) == (source.shape, source.dtype, source.layout)
    permitted = name in context.target.nonfinite or other not in context.target.nonfinite
    return with_values(case, -1, name, source.values) if same_form and permitted else None


def known_values(case: Case, context: MutationContext) -> Case | None:
    """One tensor with values at and beside numbers of the dictionary."""
    names = [name for name in context.free(case.last) if case.last.tensors[name].is_float]
    if not names:
        return None
    name = context.random.choice(names)
    d = named_dtype(case.last.tensors[name].dtype)
    centres = context.dictionary.centres(d)
    if not centres:
        return None
    chosen = context.random.sample(centres, min(len(centres), context.random.choice((1, 2, MAX_CONSTANTS))))
    constants = {f"c{index}": float(from_bits(pattern, d)) for index, pattern in enumerate(chosen)}
    spread = context.random.choice((0, 1))
    values = recipe("boundaries", context.random.randrange(1 << 16), spread=spread, builtin=0, **constants)
    return with_values(case, -1, name, values)


def overridden_values(case: Case, context: MutationContext) -> Case | None:
    """One to three elements of one tensor: numbers of the dictionary, special values, neighbours, copies of others."""
    names = context.free(case.last)
    if not names:
        return None
    name = context.random.choice(names)
    value = case.last.tensors[name]
    count = math.prod(value.stored_shape(case.last.dims))
    base = base_recipe(value.values)
    if not count or count > USUAL_TENSOR or base is None:
        return None
    overrides = dict(value.values.overrides) if isinstance(value.values, Patched) else {}
    bits, d = value.bits(case.last.dims).reshape(-1), named_dtype(value.dtype)
    for _ in range(context.random.choice((1, 1, 2, 3))):
        index = context.random.choice((0, count - 1, context.random.randrange(count)))
        pattern = other_bits(int(bits[index]), int(bits[index - 1]), int(context.random.choice(bits)), d, context)
        if is_finite(pattern, d) or name in context.target.nonfinite:
            overrides[index] = pattern
    kept = sorted(overrides.items())[:MAX_OVERRIDES]
    return with_values(case, -1, name, Patched(base, tuple(kept))) if kept else None


def other_bits(pattern: int, before: int, any_other: int, d: DType, context: MutationContext) -> int:
    """Other bits for one element, given those of the element before it and of any other one."""
    random = context.random
    kind = random.randrange(6)
    if kind == 0 and (known := context.dictionary.patterns(d)):
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


def is_finite(pattern: int, d: DType) -> bool:
    return not d.is_float or (pattern & (d.sign_mask - 1)) < d.inf_bits


WITH_DICTIONARY: tuple[Mutation, ...] = (known_dim, known_values, overridden_values)
"""Mutations that bring in numbers of the dictionary."""
MUTATIONS: tuple[Mutation, ...] = (
    *(step_dim, step_dim, known_dim, other_dtype, other_layout, other_layout, other_option, other_option, other_split),
    *(last_call_alone, other_recipe, other_recipe, other_seed, other_seed, copied_values, known_values),
    *(overridden_values, overridden_values, overridden_values),
)
"""All mutations, those that do most more often."""
