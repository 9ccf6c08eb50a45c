"""Generates the bits of a recipe, in blocks that fit the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from zlib import crc32

from fuzz.model.dtypes import DType
from fuzz.model.recipes.counter_rng import Array
from fuzz.model.recipes.grid import Grid, Span
from fuzz.model.recipes.namespace import NUMPY, Namespace
from fuzz.model.recipes.recipe import Recipe


def generate(recipe: Recipe, shape: tuple[int, ...], d: DType, xp: Namespace = NUMPY) -> Array:
    """The bits of a tensor: a new array of `shape`, of d.unsigned by numpy, of the signed type of that width by torch.

    ValueError where the recipe does not fit the format.
    """
    return generate_replicas(recipe, (recipe.seed,), shape, d, xp).reshape(shape)


def generate_replicas(
    recipe: Recipe, seeds: Sequence[int], shape: tuple[int, ...], d: DType, xp: Namespace = NUMPY
) -> Array:
    """A stack of tensors, of shape (len(seeds), *shape), made in one go.

    Each is what `generate` makes of this recipe with that seed in place of its own.
    """
    kind = recipe.kind
    if d.kind not in kind.fits:
        raise ValueError(f"recipe {recipe.name} makes {'/'.join(sorted(kind.fits))} values, not {d.name}")
    columns = shape[-1] if shape else 1
    rows = prod(shape[:-1])
    out = xp.empty(len(seeds) * rows, columns, d)
    params, salt = dict(recipe.params), _salt(recipe.name, recipe.version)
    for span in _spans(len(seeds), rows, columns, xp.block):
        grid = Grid(xp, d, params, tuple(seeds), salt, span)
        out[span.top : span.bottom, span.left : span.right] = kind.make(grid)
    return out.reshape((len(seeds), *shape))


@lru_cache(maxsize=256)
def _salt(name: str, version: int) -> int:
    return crc32(f"{name}/{version}".encode())


def _spans(count: int, rows: int, columns: int, block: int) -> Iterator[Span]:
    """Blocks of at most `block` elements: several whole rows, or parts of one row where a row is longer."""
    if not rows or not columns:
        return
    total = count * rows
    wide = min(columns, block)
    tall = max(1, block // columns)
    for top in range(0, total, tall):
        for left in range(0, columns, wide):
            yield Span(rows, columns, top, min(top + tall, total), left, min(left + wide, columns))
