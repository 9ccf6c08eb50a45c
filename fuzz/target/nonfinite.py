"""Keeps the infinities and NaN of an argument to those that its target allows: `nonfinite={"mask": "-inf"}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fuzz.errors import TargetError
from fuzz.model.dtypes import DType
from fuzz.model.recipes import Patched, Recipe, Values, exact, patched
from fuzz.target.arguments import listed

KINDS = {"inf": 1, "-inf": 2, "nan": 4}
"""Each kind as a bit of the recipe `nonfinite`."""
ALL = sum(KINDS.values())


def parse_nonfinite(declared: str | Iterable[str] | Mapping[str, str | Iterable[str]]) -> dict[str, int]:
    """The kinds that each argument may hold, as bits. TargetError for an unknown kind."""
    if not isinstance(declared, Mapping):
        return dict.fromkeys(listed(declared), ALL)
    found = {}
    for name, kinds in declared.items():
        given = set(listed(kinds))
        if not given or given - set(KINDS):
            raise TargetError(f"nonfinite={{{name!r}: {kinds!r}}}: the kinds are {', '.join(KINDS)}")
        found[name] = sum(KINDS[kind] for kind in given)
    return found


def keep_kinds(values: Values, kinds: int, d: DType) -> Values:
    """The values, of whose infinities and NaN those of other kinds are the nearest finite number, NaN 0."""
    if kinds == ALL:
        return values
    if isinstance(values, Recipe):
        return _keep_in_recipe(values, kinds)
    if isinstance(values, Patched):
        kept = tuple(one for one in values.overrides if _allowed(one[1], kinds, d))
        return patched(_keep_in_recipe(values.recipe, kinds), kept)
    if all(_allowed(pattern, kinds, d) for pattern in values.bits):
        return values
    return exact(np.array([_nearest(pattern, kinds, d) for pattern in values.bits], dtype=d.unsigned), d)


def _keep_in_recipe(values: Recipe, kinds: int) -> Recipe:
    if values.name != "nonfinite":
        return values
    params = tuple((key, (int(number) & kinds or kinds) if key == "kinds" else number) for key, number in values.params)
    return replace(values, params=params)


def _allowed(pattern: int, kinds: int, d: DType) -> bool:
    magnitude = pattern & (d.sign_mask - 1)
    if magnitude < d.inf_bits:
        return True
    return bool(kinds & (KINDS["nan"] if magnitude > d.inf_bits else KINDS["-inf" if pattern & d.sign_mask else "inf"]))


def _nearest(pattern: int, kinds: int, d: DType) -> int:
    if _allowed(pattern, kinds, d):
        return pattern
    is_nan = (pattern & (d.sign_mask - 1)) > d.inf_bits
    return 0 if is_nan else d.largest_bits | (pattern & d.sign_mask)
