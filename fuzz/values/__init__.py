"""Values: recipes that make a tensor's bits from a seed, the same in numpy and torch on any device; and exact words.

`fuzz.values.torch_values` is the torch half; nothing here imports it.
"""

from fuzz.values.generation import generate, replicas
from fuzz.values.listed import Exact, Overrides, Patched, Values, exact, override, words_of
from fuzz.values.recipes import Params, Recipe, recipe
from fuzz.values.table import RECIPES, RecipeKind

__all__ = [
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
    "recipe",
    "replicas",
    "words_of",
]
