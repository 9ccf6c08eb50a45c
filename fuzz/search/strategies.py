"""Draws cases of a target by Hypothesis.

Every decision is one small integer drawn by Hypothesis and looked up in a weighted table, adversarial things first:
sizes near 0, 1, powers of two and the ends of their range, layouts other than contiguous, values that break kernels.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from fuzz.model.case import Argument, Call, Case, Scalar, Split, first_floating
from fuzz.model.dims import Size, names, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import CURRENT, Recipe, RecipeKind, recipe
from fuzz.target.arguments import TensorArgument
from fuzz.target.indices import IndexArgument
from fuzz.target.legal import legal_split, make_call_legal
from fuzz.target.shapes import Shape, fitting
from fuzz.target.spec import Target

if TYPE_CHECKING:
    from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[int], int]
"""Draws an integer from 0 to n - 1."""

Budgets = tuple[tuple[int, int], ...]
LONG, MAX_LONG = 0, 1 << 17
"""The budget of cases in which one dim is long, up to tensors of so many elements, and every other one is tiny: kernels
take other paths beyond the sizes of their blocks, and one row shows that as well as many."""
MAX_UNEVEN = 1 << 20
"""Elements of the largest tensor that has one dim twice, or two dims apart, but where the least sizes need as many."""
ROOM = 4
"""How many times as many elements as with the least sizes there may be, whatever the budget: a dim that begins at 1000
would else have no other size in most cases."""
BUDGETS: Budgets = ((54, 1 << 8), (6, LONG), (27, 1 << 11), (10, 1 << 14), (3, 1 << 17))
"""(weight, elements): most cases are small, 3 in 100 may have tensors of up to 2**17 elements."""
KEPT = ((1, (False, False)), (1, (True, False)), (1, (False, True)), (1, (True, True)))
"""(weight, whether a call has the dims, and the options, of the one before it): what is kept may depend on both."""
OCTAVES = ((4, 0), (2, 1), (1, 2), (1, 3))
"""(weight, powers of two that a long dim lies below the longest)."""
COPIES, COPY_REMAINDER = 8, 5
"""One argument in so many, by the remainder of its seed, has the values of an earlier one of its shape and dtype."""
ABSENT = 3
"""One in so many arguments that may be None is."""
HUGE_REACH = 30
"""A huge layout's slowest stride, 2**30 elements: an int32 offset overflows at the third row."""


def pick(draw: Draw, table: Sequence[tuple[int, T]]) -> T:
    """One of (weight, value), in proportion to its weight."""
    ends = list(accumulate([weight for weight, _ in table]))
    return table[bisect_right(ends, draw(ends[-1]))][1]


def cases(target: Target, budgets: Budgets = BUDGETS) -> st.SearchStrategy[Case]:
    """Cases of a target; each is consistent with its dims, and may be illegal only where a launcher says so."""
    # Importing it takes as long as everything else that the command line needs.
    from hypothesis import strategies as st

    @lru_cache(maxsize=1024)
    def integers(n: int) -> st.SearchStrategy[int]:
        return st.integers(0, n - 1)

    @st.composite
    def build(draw: st.DrawFn) -> Case:
        return draw_case(lambda n: draw(integers(n)) if n > 1 else 0, target, budgets)

    return build()


def draw_case(draw: Draw, target: Target, budgets: Budgets) -> Case:
    """One call, or now and then two or three whose state between them is the question; rarely a split."""
    count = pick(draw, ((94, 1), (4, 2), (2, 3)))
    calls = [draw_call(draw, target, budgets)]
    while len(calls) < count:
        dims, options = pick(draw, KEPT)
        before = calls[-1]
        calls.append(
            draw_call(draw, target, budgets, before.dims if dims else None, before.options if options else None)
        )
    split = None
    if target.batch_dim and draw(3) == 0:
        split = legal_split(draw_split(draw, calls[-1].dims[target.batch_dim]), target)
    return Case(target.name, tuple(calls), split)


def draw_call(
    draw: Draw,
    target: Target,
    budgets: Budgets,
    dims: Mapping[str, int] | None = None,
    options: Mapping[str, Scalar] | None = None,
) -> Call:
    """A call of these dims and options; those that are None are drawn."""
    if dims is None:
        dims = draw_dims(draw, target, budgets)
    uniform = draw(100) < 80
    first = draw(1 << 16)
    ranks = {name: run.least + draw(run.most - run.least + 1) for name, run in target.runs.items()}
    arguments: dict[str, Argument] = {}
    for name, declared in target.tensors.items():
        if declared.optional and draw(ABSENT) == 0:
            continue
        choice = first if uniform else draw(1 << 16)
        declared = draw_shape(draw, declared, ranks)
        value = draw_argument(draw, target, name, declared, dims, choose_dtype(declared.dtypes, choice))
        arguments[name] = copy_earlier_values(target, name, value, arguments)
    if options is None:
        options = {name: option.choices[draw(len(option.choices))] for name, option in target.options.items()}
    floating = first_floating(arguments)
    dtype = arguments[floating].dtype if floating else "float32"
    cotangents = {
        name: draw_argument(draw, target, name, draw_shape(draw, declared, ranks), dims, dtype)
        for name, declared in target.cotangents.items()
    }
    return make_call_legal(Call(dims, arguments, options, cotangents), target)


def draw_shape(draw: Draw, declared: TensorArgument, ranks: Mapping[str, int]) -> TensorArgument:
    """The declaration with one of its shapes: of those with these ranks the plain one half of the time."""
    shapes = fitting(declared.shapes, declared.runs, ranks)
    choice = draw(2 * len(shapes)) if len(shapes) > 1 else 0
    return replace(declared, shape=shapes[choice if choice < len(shapes) else 0]) if declared.others else declared


def copy_earlier_values(target: Target, name: str, value: Argument, earlier: Mapping[str, Argument]) -> Argument:
    """Now and then the argument with the values of an earlier one: kernels that compare or divide the two meet ties."""
    indices = isinstance(target.tensors[name], IndexArgument)
    if not isinstance(value.values, Recipe) or indices or value.values.seed % COPIES != COPY_REMAINDER:
        return value
    for other, candidate in reversed(list(earlier.items())):
        same_form = (candidate.shape, candidate.dtype) == (value.shape, value.dtype)
        same_form = same_form and not isinstance(target.tensors[other], IndexArgument)
        if same_form and (other in target.nonfinite) == (name in target.nonfinite):
            return replace(value, values=candidate.values)
    return value


def choose_dtype(dtypes: Sequence[str], choice: int) -> str:
    """The plain dtype half of the time, else any of them, by one number below 2**16."""
    return dtypes[0] if choice % 2 else dtypes[(choice // 2) % len(dtypes)]


def draw_dims(draw: Draw, target: Target, budgets: Budgets) -> dict[str, int]:
    """Sizes whose tensors stay within a budget of elements; which dim is drawn first changes from case to case."""
    budget = pick(draw, budgets)
    order = list(target.sizes)
    first = draw(len(order)) if order else 0
    dims: dict[str, int] = {dim.name: dim.least for dim in order}
    if order and budget == LONG:
        return draw_long(draw, target, dims, order[first])
    room = with_room(target, dims, budget)
    for position, dim in enumerate(order[first:] + order[:first]):
        most = largest_within(target, dims, dim, room)
        if budget == budgets[-1][1] and position == len(order) - 1 and draw(4):
            below = min(most // 2, most - dims[dim.name])
            dims[dim.name] = most if draw(2) else dim.clamp(most - draw(below + 1))
            continue
        # The first dim may be as large as it gets whatever the budget: the others then stay small.
        extreme = partial(largest_alone, target, dims, dim) if position == 0 else None
        dims[dim.name] = draw_size(draw, dim, most, extreme)
    return dims


def draw_long(draw: Draw, target: Target, dims: dict[str, int], long: Size) -> dict[str, int]:
    """One dim near its largest sizes, at their end, beside a power of two or anywhere; the others are among their first
    three sizes."""
    for dim in target.sizes:
        dims[dim.name] = dim.clamp(first_size(dim) + draw(3) * dim.multiple)
    most = largest_within(target, dims, long, with_room(target, {**dims, long.name: long.least}, MAX_LONG))
    least = first_size(long)
    power = 1 << max(most.bit_length() - 1 - pick(draw, OCTAVES), least.bit_length() - 1)
    sizes = (most, power + (draw(3) - 1) * long.multiple, max(power, least) + draw(power))
    dims[long.name] = long.clamp(min(most, sizes[draw(3)]))
    return dims


def is_plain(dim: Size) -> bool:
    """Whether a dim has all sizes from 1, or 0, on: then powers of two say where to look, and a case may be tiny."""
    return dim.low <= 1 and dim.multiple == 1


def first_size(dim: Size) -> int:
    """The least size of a dim that is not 0."""
    return dim.least or dim.multiple


def with_room(target: Target, dims: Mapping[str, int], budget: int) -> int:
    """The budget, or more where the least sizes take nearly all of it and every dim would have its least one."""
    if all(map(is_plain, target.sizes)):
        return budget
    return max(budget, ROOM * count_elements(target.argument_shapes + target.cotangent_shapes, dims))


def count_elements(shapes: Iterable[Shape], dims: Mapping[str, int]) -> int:
    """Elements of the largest of these shapes."""
    return max([math.prod(resolve(shape, dims)) for shape in shapes], default=0)


def largest_within(target: Target, dims: Mapping[str, int], dim: Size, budget: int) -> int:
    """The largest size of a dim at which no tensor has more than budget elements, the others as they are.

    Arguments that have the dim once are taken to grow by each size as they do by the first; which the largest of them
    is may change, and they have more elements then.
    """
    arguments = target.argument_shapes
    most = largest_counted(uneven_shapes(arguments, dim.name) + target.cotangent_shapes, dims, dim, budget)
    most = min(most, largest_beside(target, dims, dim))
    if count_elements(arguments, {**dims, dim.name: most}) <= budget:
        return most
    least = dim.least
    fewest, more = (count_elements(arguments, {**dims, dim.name: size}) for size in (least, least + dim.multiple))
    return min(most, dim.clamp(least + (budget - fewest) // max(more - fewest, 1) * dim.multiple))


def largest_beside(target: Target, dims: Mapping[str, int], dim: Size) -> int:
    """The largest size of a dim with which a result is not too large that has one of the dims apart as well.

    What shapes outputs have is not declared without cotangents: they may be outer products, or products of matrices.
    """
    most = [room_beside(dim, other) // max(dims[other.name], 1) for other in target.apart[dim.name]]
    return dim.clamp(min(most, default=dim.high))


def fits_beside(target: Target, dims: Mapping[str, int]) -> bool:
    """Whether no result is too large that has two dims apart."""
    pairs = [(dim, other) for dim in target.sizes for other in target.apart[dim.name]]
    return all(dims[dim.name] * dims[other.name] <= room_beside(dim, other) for dim, other in pairs)


def room_beside(dim: Size, other: Size) -> int:
    """The elements that a result of these two dims may have."""
    return max(MAX_UNEVEN, ROOM**2 * dim.least * other.least)


def largest_alone(target: Target, dims: Mapping[str, int], dim: Size) -> int:
    """The largest size of a dim where the others have their least ones; less where tensors have the dim twice, or where
    results may have it beside another one."""
    shapes = target.argument_shapes + target.cotangent_shapes
    budget = max(MAX_UNEVEN, ROOM**2 * count_elements(shapes, dims))
    return min(largest_counted(uneven_shapes(shapes, dim.name), dims, dim, budget), largest_beside(target, dims, dim))


def largest_counted(shapes: Sequence[Shape], dims: Mapping[str, int], dim: Size, budget: int) -> int:
    """The largest size of a dim at which none of these shapes has more than budget elements, by bisection."""

    def elements(size: int) -> int:
        return count_elements(shapes, {**dims, dim.name: size})

    sizes = range(dim.least, dim.high + 1, dim.multiple)
    if not shapes or elements(sizes[-1]) <= budget:
        return sizes[-1]
    return sizes[max(bisect_right(sizes, budget, key=elements), 1) - 1]


@lru_cache(maxsize=4096)
def uneven_shapes(shapes: tuple[Shape, ...], name: str) -> tuple[Shape, ...]:
    """The shapes that do not grow by as much with each size of a dim: they have the dim twice, or divide it."""
    return tuple(
        shape
        for shape in shapes
        if sum(names(text).count(name) for text in shape) > 1
        or any("//" in text and name in names(text) for text in shape)
    )


def draw_size(draw: Draw, dim: Size, most: int, extreme: Callable[[], int] | None) -> int:
    """A size near the least, near a power of two, at an end of the range, or anywhere in it on a log scale.

    `extreme` finds a largest size beyond `most`, which one draw in a hundred asks for.
    """
    kind = draw(100)
    if kind == 0:
        return dim.clamp(extreme() if extreme else most)
    if kind == 1:
        return dim.least
    if kind < 45:
        return dim.clamp(min(most, first_size(dim) + draw(6) * dim.multiple))
    if not is_plain(dim):
        return draw_between(draw, dim, most, marked=kind < 75)
    bits = draw(max(most.bit_length(), 1))
    if kind < 75:
        return dim.clamp(min(most, max((1 << bits) + draw(3) - 1, 0)))
    return dim.clamp(min(most, (1 << bits) + draw(1 << bits)))


def draw_between(draw: Draw, dim: Size, most: int, *, marked: bool) -> int:
    """The same of a dim that begins above 1, or has multiples only; `marked` is beside a power of two, or the end.

    Where the range has a power of two or none, sizes beside it would be all that is drawn: half of them are anywhere.
    """
    least, step = first_size(dim), dim.multiple
    octaves = range(least.bit_length() - 1, max(most, least).bit_length())
    narrow = len(octaves) < 3
    if marked and not (narrow and draw(2)):
        marks = (*(1 << bits for bits in octaves if 1 << bits >= least), most)
        return dim.clamp(min(most, marks[draw(len(marks))] + (draw(3) - 1) * step))
    bits = octaves[draw(len(octaves))]
    low, high = (least, most) if narrow else (max(least, 1 << bits), min(most, (2 << bits) - 1))
    return dim.clamp(min(most, low + draw(max(high - low, 0) // step + 1) * step))


def draw_argument(
    draw: Draw, target: Target, name: str, declared: TensorArgument, dims: Mapping[str, int], dtype: str
) -> Argument:
    layout = draw_layout(draw, resolve(declared.shape, dims))
    return Argument(declared.shape, dtype, draw_values(draw, target, name, declared, dtype), layout)


def draw_layout(draw: Draw, shape: tuple[int, ...]) -> Layout:
    """Half contiguous, else one thing that is special about it."""
    kind = draw(100)
    rank = len(shape)
    if kind < 50 or not rank:
        return CONTIGUOUS
    if kind < 60:
        return Layout(offset=1 + draw(8))
    if kind < 68:
        return Layout(expand=(draw(rank),)) if draw(4) else Layout(expand=tuple(range(rank)))
    if kind < 74 or rank == 1:
        return Layout(step=2 + draw(2), offset=draw(3))
    if kind < 84:
        order = list(range(rank))
        order.append(order.pop(draw(rank - 1)))
        return Layout(order=tuple(order))
    if kind < 91:
        return Layout(pad=1 + draw(9))
    if kind < 94 or not 3 <= shape[0] <= 4:
        return Layout(pad=1 + draw(9), offset=1 + draw(8))
    return Layout(reach=HUGE_REACH)


def draw_values(draw: Draw, target: Target, name: str, declared: TensorArgument, dtype: str) -> Recipe:
    """A recipe of the argument's kind; `make_call_legal` then gives it the bounds that depend on dims and options."""
    if not declared.recipes:
        return draw_recipe(draw, target, name, dtype)
    chosen = pick(draw, declared.recipes)
    params: dict[str, int] = {}
    if chosen in declared.drawn_parameters:
        parameter, least, count = declared.drawn_parameters[chosen]
        params[parameter] = least + draw(count)
    return recipe(chosen, draw(1 << 16), **params)


def draw_recipe(draw: Draw, target: Target, name: str, dtype: str) -> Recipe:
    """A recipe that fits the dtype; non-finite values only where the target allows them."""
    kind = pick(draw, recipe_table(named_dtype(dtype).kind, name in target.nonfinite))
    plain = draw(2)
    params: list[tuple[str, int | float]] = []
    for key, (low, high) in kind.params.items():
        params.append((key, kind.defaults[key] if plain else low + draw(high - low + 1)))
    if kind.constants and target.constants:
        params += [(f"c{index}", value) for index, value in enumerate(target.constants[: kind.constants])]
    return Recipe(kind.name, kind.version, draw(1 << 16), tuple(params))


@lru_cache
def recipe_table(kind: str, nonfinite: bool) -> tuple[tuple[int, RecipeKind], ...]:
    """(weight, recipe) for a kind of dtype."""
    fitting = [recipe for recipe in CURRENT.values() if kind in recipe.fits and recipe.general]
    return tuple((recipe.weight, recipe) for recipe in fitting if recipe.finite or nonfinite)


def draw_split(draw: Draw, rows: int) -> Split | None:
    """Some of the rows, alone or among others."""
    if rows == 0:
        return None
    start = draw(rows)
    length = 1 if draw(2) else 1 + draw(rows - start)
    if draw(2):
        return Split(start, length)
    return Split(start, length, draw(4) * draw(17), draw(4) * draw(17))
