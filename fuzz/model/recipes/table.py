"""Lists the recipes: what each makes, the parameters it takes and the formats it fits.

A recipe's bits never change. To change one, add a line with the next version after the old line, which stays for ever:
entries that name the old version are read with it, and new cases are drawn with the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fuzz.model.dtypes import Kind
from fuzz.model.recipes import distributions, edges, integers, patterns, sampling_locations
from fuzz.model.recipes.counter_rng import Array
from fuzz.model.recipes.grid import Grid

ANY: frozenset[Kind] = frozenset({"float", "int", "uint", "bool"})
FLOAT: frozenset[Kind] = frozenset({"float"})
NUMBER: frozenset[Kind] = frozenset({"float", "int", "uint"})
INTEGER: frozenset[Kind] = frozenset({"int", "uint"})
BITS: frozenset[Kind] = frozenset({"int", "uint", "bool"})


@dataclass(frozen=True)
class RecipeKind:
    """One recipe: `params` gives each parameter's range, both ends included, `defaults` its value where none is given.

    `constants` is the number of free float parameters c0, c1, .. that it takes. `finite` recipes make no infinity or
    NaN in any format that they fit: where a value is too large for it, they stop at its largest. Those that are not
    `general` are for an argument kind of their own. `simplicity` is the rank in the order of cases, the simplest first;
    `weight` is how often the recipe is drawn, in proportion to the others'. `torch` is an expression over the
    parameters and the `shape` that makes values like these, empty where there is no short one.
    """

    name: str
    meaning: str
    make: Callable[[Grid], Array]
    fits: frozenset[Kind] = FLOAT
    params: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    finite: bool = True
    constants: int = 0
    version: int = 1
    general: bool = True
    simplicity: int = 5
    weight: int = 3
    torch: str = ""


def _kind(
    name: str,
    make: Callable[[Grid], Array],
    meaning: str,
    fits: frozenset[Kind] = FLOAT,
    *,
    finite: bool = True,
    constants: int = 0,
    version: int = 1,
    general: bool = True,
    simplicity: int = 5,
    weight: int = 3,
    torch: str = "",
    **params: tuple[int, int, int],
) -> RecipeKind:
    """A kind with each parameter given as (low, high, default)."""
    ranges = MappingProxyType({name: (low, high) for name, (low, high, _) in params.items()})
    defaults = MappingProxyType({name: default for name, (_, _, default) in params.items()})
    flags = (finite, constants, version, general, simplicity, weight, torch)
    return RecipeKind(name, meaning, make, fits, ranges, defaults, *flags)


_SCALE = (-24, 13, 0)  # 6.01 * 2^13, the largest normal value then, is still below the largest of float16
_RARE = (1, 8, 3)
_BELOW = (1, 1 << 31, 16)
_WHOLE = (0, 1, 0)
_GRIDS: Any = {f"s{index}": (1, 1 << 20, 4) for index in range(2 * sampling_locations.LEVELS)}

_KINDS = (
    _kind("zeros", patterns.zeros, "0 everywhere", ANY, simplicity=0, weight=2, torch="torch.zeros({shape})"),
    _kind("ones", patterns.ones, "1 everywhere", ANY, simplicity=1, torch="torch.ones({shape})"),
    _kind(
        "constant",
        patterns.constant,
        "mantissa * 2^exponent everywhere",
        NUMBER,
        simplicity=2,
        weight=4,
        mantissa=(-256, 256, 1),
        exponent=(-40, 40, 0),
    ),
    _kind(
        "normal",
        distributions.normal,
        "normal of standard deviation 2^exponent",
        simplicity=4,
        weight=12,
        torch="torch.randn({shape}) * 2.0**{exponent}",
        exponent=_SCALE,
    ),
    _kind(
        "uniform",
        distributions.uniform_values,
        "uniform from 0 to 2^exponent, with signed 1 from its negative on, with signed -1 from its negative to 0",
        exponent=_SCALE,
        signed=(-1, 1, 1),
    ),
    _kind(
        "exponents",
        edges.exponents,
        "every exponent of the format (or 2^-width .. 2^width) as likely as any other",
        weight=5,
        width=(1, 1100, 1100),
        subnormals=(0, 1, 1),
    ),
    _kind("rows_constant", patterns.rows_constant, "one normal value a row", exponent=_SCALE),
    _kind(
        "near_constant",
        patterns.near_constant,
        "one normal value a row, plus up to `ulps` units in the last place",
        exponent=_SCALE,
        ulps=(1, 8, 2),
    ),
    _kind(
        "mean_shift",
        distributions.mean_shift,
        "normal around a mean 2^mean times its standard deviation",
        weight=8,
        exponent=(-24, 3, 0),
        mean=(4, 12, 8),
    ),
    _kind(
        "outliers",
        distributions.outliers,
        "normal, one or a few columns 2^factor times as large",
        exponent=(-24, 8, 0),
        factor=(4, 16, 8),
        channels=(1, 4, 1),
    ),
    _kind(
        "cancelling",
        patterns.cancelling,
        "pairs a, -a (up to `ulps` apart) over a row, so that its sum nearly vanishes",
        exponent=_SCALE,
        ulps=(0, 8, 1),
    ),
    _kind("sparse", distributions.sparse, "one in 2^rarity normal, the others 0", exponent=_SCALE, rarity=_RARE),
    _kind(
        "integers",
        integers.integers,
        "whole numbers in -bound .. bound: exact sums, ties",
        NUMBER,
        simplicity=3,
        weight=6,
        bound=(1, 1000, 4),
    ),
    _kind("ties", patterns.ties, "a few distinct normal values, again and again", exponent=_SCALE, distinct=(1, 8, 3)),
    _kind("subnormals", edges.subnormals, "subnormals of all sizes, both signs"),
    _kind("signed_zeros", edges.signed_zeros, "+0 and -0, one in 2^rarity +1 or -1", rarity=_RARE),
    _kind(
        "boundaries",
        edges.boundaries,
        "values within `spread` steps of constants where functions turn, and of the caller's c0 .. c7",
        constants=edges.CONSTANTS,
        spread=(0, 16, 1),
        builtin=(0, 1, 1),
    ),
    _kind("huge", edges.huge, "the largest binades", binades=(1, 16, 2)),
    _kind("tiny", edges.tiny, "the smallest normal binades", binades=(1, 16, 2)),
    _kind("ramp", patterns.ramp, "start, start + step, .. in each row", NUMBER, start=(-64, 64, 0), step=(-8, 8, 1)),
    _kind("onehot", patterns.onehot, "one 2^exponent a row, the others 0", exponent=_SCALE),
    _kind(
        "prefixes",
        patterns.prefixes,
        "true in the first columns of a row, of any number; in a quarter of the rows from another place on",
        frozenset({"bool"}),
    ),
    _kind("alternating", patterns.alternating, "+a, -a, +a, .. with one normal a a row", exponent=_SCALE),
    _kind(
        "nonfinite",
        distributions.nonfinite,
        "normal; one in 2^rarity, at least one, of `kinds`: 1 inf + 2 -inf + 4 NaN; rarity 0: all",
        finite=False,
        exponent=_SCALE,
        rarity=(0, 8, 3),
        kinds=(1, 7, 7),
    ),
    _kind("indices", integers.indices, "uniform in 0 .. below - 1", INTEGER, below=_BELOW),
    _kind("indices_edges", integers.indices_edges, "0, below - 1, the middle, repeats", INTEGER, below=_BELOW),
    _kind(
        "indices_sentinel",
        integers.indices_sentinel,
        "uniform in 0 .. below - 1, one in 2^rarity the sentinel",
        INTEGER,
        below=_BELOW,
        sentinel=(-(1 << 31), (1 << 31) - 1, -100),
        rarity=_RARE,
    ),
    _kind(
        "locations",
        sampling_locations.locations,
        "anywhere in a grid, or up to a quarter of it outside",
        general=False,
        signed=_WHOLE,
    ),
    _kind(
        "location_outside",
        sampling_locations.location_outside,
        "outside of a grid, up to 8 times its size",
        general=False,
        signed=_WHOLE,
    ),
    _kind(
        "location_edges",
        sampling_locations.location_edges,
        "where a cell's neighbours change, and a grid's border, within `spread` steps",
        general=False,
        signed=_WHOLE,
        align=_WHOLE,
        spread=(0, 16, 1),
        levels=(1, sampling_locations.LEVELS, 1),
        points=(1, 1 << 31, 1),
        **_GRIDS,
    ),
    _kind("random_bits", integers.random_bits, "every bit random", BITS),
)

RECIPES: dict[tuple[str, int], RecipeKind] = {(kind.name, kind.version): kind for kind in _KINDS}
"""Every recipe that an entry may name, by name and version."""
CURRENT: dict[str, RecipeKind] = {kind.name: kind for kind in _KINDS}
"""The newest version of each recipe, which new cases are drawn with, in the order of the list."""
