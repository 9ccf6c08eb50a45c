"""Locations: the argument kind of places in grids, as bilinear sampling takes them, and recipes that fit the grids.

Where such a kernel is wrong depends on the sizes of its grids: at the edges of cells, at the border, one unit in the
last place beside both, outside. `fitted` keeps a recipe at those places when a size or the option of alignment changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Scalar
from fuzz.model.dims import Expression, Size, evaluate, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Patched, Recipe, Values, recipe
from fuzz.target.spec import TensorArgument, tensor

RECIPES = ("locations", "location_edges", "location_outside")
LEVELS = 4
"""Most grids."""


def locations(
    *shape: Expression | int,
    grids: Sequence[tuple[Expression | int, Expression | int]],
    align: str | bool = False,
    signed: bool = False,
    dtypes: Iterable[str] = (),
) -> TensorArgument:
    """A tensor of places; the last dim is 2, for x and y, and of several grids the third from the end counts them.

    `grids` are (height, width). Places go from 0 to 1, or with `signed` from -1 to 1; with `align` those are the
    centres of the first and the last cell, else their outer edges: True, False, or the name of the option that says so.
    TargetError where the shape does not fit.
    """
    given = tensor(*shape, dtypes=dtypes)
    for name in given.dtypes:
        if not named_dtype(name).is_float:
            raise TargetError(f"locations() are floating, not {name}")
    many = len(grids)
    if given.shape[-1:] != ("2",) or (many > 1 and given.shape[-3:-2] != (str(many),)) or not 0 < many <= LEVELS:
        wanted = f"(.., {many}, points, 2)" if many > 1 else "(.., 2)"
        raise TargetError(f"locations() of {many} grids have the shape {wanted}, not ({', '.join(given.shape)})")
    parts = [part for grid in grids for part in grid]
    sizes = (*given.sizes, *(part for part in parts if isinstance(part, Size)))
    texts = [part.text if isinstance(part, Expression) else str(part) for part in parts]
    along = tuple(text for height, width in zip(texts[::2], texts[1::2], strict=True) for text in (width, height))
    return replace(given, sizes=sizes, grids=along, align=align, signed=signed)


def fitted(value: Argument, spec: TensorArgument, call: Call) -> Values:
    """The argument's values, a recipe of locations with the sizes of this call; others as they are."""
    if isinstance(value.values, Patched):
        return replace(value.values, recipe=_fitted(value.values.recipe, spec, call.dims, call.options))
    return _fitted(value.values, spec, call.dims, call.options) if isinstance(value.values, Recipe) else value.values


def _fitted(made: Recipe, spec: TensorArgument, dims: Mapping[str, int], options: Mapping[str, Scalar]) -> Recipe:
    if made.name not in RECIPES:
        return made
    params = dict(made.params) | {"signed": int(spec.signed)}
    if made.name == "location_edges":
        levels = len(spec.grids) // 2
        points = resolve(spec.shape, dims)[-2] if levels > 1 else 1
        align = options[spec.align] if isinstance(spec.align, str) else spec.align
        params |= {f"s{index}": max(evaluate(text, dims), 1) for index, text in enumerate(spec.grids)}
        params |= {"levels": levels, "points": max(points, 1), "align": int(bool(align))}
    return recipe(made.name, made.seed, **params)
