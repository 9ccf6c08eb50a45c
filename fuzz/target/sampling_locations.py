"""Declares arguments that hold sampling locations: coordinates in grids, as bilinear sampling takes them.

Where such a kernel is wrong depends on the sizes of its grids: at the edges of cells, at the border, one unit in the
last place beside both, outside. So a recipe of locations is given the sizes of the grids, and the alignment, of its
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call
from fuzz.model.dims import Expression, Size, evaluate, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Patched, Recipe, Values, recipe
from fuzz.target.arguments import OptionArgument, TensorArgument, tensor

RECIPES = ((5, "locations"), (9, "location_edges"), (3, "location_outside"), (1, "zeros"), (1, "ones"))
"""(weight, name) of the recipes that locations are drawn from."""
ON_GRIDS = ("locations", "location_edges", "location_outside")
"""Those of them that depend on the grids."""
MAX_GRIDS = 4


@dataclass(frozen=True)
class SamplingLocationArgument(TensorArgument):
    """A tensor of coordinates; `grids` holds width and height of each grid in turn, as expressions over dims."""

    grids: tuple[str, ...] = ()
    align: str | bool = False
    signed: bool = False

    @property
    def recipes(self) -> tuple[tuple[int, str], ...]:
        return RECIPES

    @property
    def drawn_parameters(self) -> Mapping[str, tuple[str, int, int]]:
        return {"location_edges": ("spread", 0, 3)}

    @property
    def limits(self) -> tuple[str, ...]:
        return self.grids

    def legal_values(self, value: Argument, call: Call) -> Values:
        """A recipe of locations with the grids of this call; other values as they are."""
        if isinstance(value.values, Patched):
            return replace(value.values, recipe=self._on_grids(value.values.recipe, call))
        return self._on_grids(value.values, call) if isinstance(value.values, Recipe) else value.values

    def _on_grids(self, values: Recipe, call: Call) -> Recipe:
        if values.name not in ON_GRIDS:
            return values
        params = dict(values.params) | {"signed": int(self.signed)}
        if values.name == "location_edges":
            levels = len(self.grids) // 2
            points = resolve(self.shape, call.dims)[-2] if levels > 1 else 1
            align = call.options[self.align] if isinstance(self.align, str) else self.align
            params |= {f"s{index}": max(evaluate(text, call.dims), 1) for index, text in enumerate(self.grids)}
            params |= {"levels": levels, "points": max(points, 1), "align": int(bool(align))}
        return recipe(values.name, values.seed, **params)

    def check(self, name: str, least: Mapping[str, int], options: Mapping[str, OptionArgument]) -> None:
        super().check(name, least, options)
        if isinstance(self.align, str) and self.align not in options:
            raise TargetError(f"argument {name!r} is aligned by {self.align!r}, which is no option")


def locations(
    *shape: Expression | int,
    grids: Sequence[tuple[Expression | int, Expression | int]],
    align: str | bool = False,
    signed: bool = False,
    dtypes: Iterable[str] = (),
    contiguous: bool = False,
) -> SamplingLocationArgument:
    """A tensor of coordinates; the last dim is 2, for x and y, and of several grids the third from the end counts them.

    `grids` are (height, width). Coordinates go from 0 to 1, or with `signed` from -1 to 1; with `align` those are the
    centres of the first and the last cell, else their outer edges: True, False, or the name of the option that says so.
    TargetError where the shape does not fit.
    """
    plain = tensor(*shape, dtypes=dtypes)
    for name in plain.dtypes:
        if not named_dtype(name).is_float:
            raise TargetError(f"locations() are floating, not {name}")
    count = len(grids)
    if plain.shape[-1:] != ("2",) or (count > 1 and plain.shape[-3:-2] != (str(count),)) or not 0 < count <= MAX_GRIDS:
        wanted = f"(.., {count}, points, 2)" if count > 1 else "(.., 2)"
        raise TargetError(f"locations() of {count} grids have the shape {wanted}, not ({', '.join(plain.shape)})")
    extents = [extent for height, width in grids for extent in (height, width)]
    sizes = (*plain.sizes, *(extent for extent in extents if isinstance(extent, Size)))
    texts = [extent.text if isinstance(extent, Expression) else str(extent) for extent in extents]
    widths_first = tuple(text for pair in zip(texts[1::2], texts[::2], strict=True) for text in pair)
    return SamplingLocationArgument(
        plain.shape, plain.dtypes, sizes, widths_first, align, signed, contiguous=contiguous
    )
