"""Makes tensors' bits from recipes and seeds, the same in numpy and torch on any device, or from exact bits.

`fuzz.model.recipes.torch_values` is the torch half; nothing here imports it.
"""

from fuzz.model.recipes.explicit import Exact, Overrides, Patched, Values, bits_of, exact, override, patched
from fuzz.model.recipes.generation import generate, generate_replicas
from fuzz.model.recipes.recipe import Params, Recipe, recipe
from fuzz.model.recipes.table import CURRENT, RECIPES, RecipeKind

__all__ = [
    "CURRENT",
    "RECIPES",
    "Exact",
    "Overrides",
    "Params",
    "Patched",
    "Recipe",
    "RecipeKind",
    "Values",
    "exact",
    "generate",
    "override",
    "patched",
    "recipe",
    "generate_replicas",
    "bits_of",
]
