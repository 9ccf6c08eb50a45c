"""A dtype for tests of every recipe: each fits some of them only."""

from __future__ import annotations

from fuzz.model.dtypes import DType, dtype
from fuzz.model.recipes.table import RecipeKind


def fitting_dtype(kind: RecipeKind, *names: str) -> DType:
    """The first of these dtypes whose values a recipe makes; bool where it makes none of them."""
    return next((found for found in map(dtype, names) if found.kind in kind.fits), dtype("bool"))
