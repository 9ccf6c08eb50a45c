"""Writes the values of a typical case for readers without this package: all of them, or what torch makes like them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fuzz.model.case import Argument, Call
from fuzz.model.recipes import Exact, Recipe
from fuzz.report.text import values_text
from fuzz.text import shell_quote

MAX_LISTED, MAX_MADE = 64, 1 << 22
"""Elements of a tensor whose values are all listed, and of one whose first values are worth making the whole."""


def script_command(path: object, target: str = "") -> str:
    """The shell's command that prints the program of a typical case, with every value exactly."""
    given = f" --target {shell_quote(target)}" if target else ""
    return f"fuzz show --script --typical {shell_quote(str(path))}{given}"


def typical_values_text(value: Argument, call: Call) -> str:
    """All values of a small tensor; the first ones of a large one, and what a torch expression or words say of all."""
    shape = value.stored_shape(call.dims)
    count = prod(shape)
    made = describe_recipe(value.values, shape) if isinstance(value.values, Recipe) else ""
    if count > MAX_MADE:
        return made or values_text(value, call)
    words = tuple(int(word) for word in value.bits(call.dims).reshape(-1))
    listed = replace(value, values=Exact(words, value.dtype))
    if count <= MAX_LISTED:
        return values_text(listed, call, MAX_LISTED)
    return values_text(listed, call) + (f", {made}" if made else "")


def describe_recipe(recipe: Recipe, shape: tuple[int, ...]) -> str:
    """How torch makes values like a recipe's, or in words what they are."""
    params = dict(recipe.params)
    if recipe.kind.torch:
        made = recipe.kind.torch.format(shape=", ".join(map(str, shape)), **params)
        return f"like {made.removesuffix(' * 2.0**0')}"
    numbers = " ".join(f"{name}={number}" for name, number in params.items())
    return recipe.kind.meaning + (f" ({numbers})" if numbers else "")
