"""A recipe is a tensor's values as data: a name with its version, a seed and a few numbers. Its one-line text:

    normal/1 seed=7 exponent=-3
    boundaries/1 seed=1 spread=1 builtin=0 c0=-3.7

The version belongs to the recipe of that name; the rest are decimal integers, constants decimal floats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from fuzz.model.recipes.table import CURRENT, RECIPES, RecipeKind

Params = tuple[tuple[str, int | float], ...]

SEEDS = 1 << 63
_LONGEST = 1000
_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_HEAD = re.compile(r"([a-z_]+)/([1-9][0-9]{0,3}) seed=(0|[1-9][0-9]{0,18})")
_PARAM = re.compile(r"([a-z_]+[0-9]?)=(\S+)")


@dataclass(frozen=True)
class Recipe:
    """`params` holds every parameter of the recipe, in declared order, then constants c0, c1, .. as floats.

    Use `recipe(..)` to fill in defaults. Tensors with the same recipe and seed are equal: give each argument a seed of
    its own. ValueError names what would be right.
    """

    name: str
    version: int
    seed: int
    params: Params = ()

    def __post_init__(self) -> None:
        kind = _known(self.name, self.version)
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"{self.name}: seed {self.seed} is not in 0 .. 2^63 - 1")
        names = [name for name, _ in self.params]
        wanted = [*kind.params, *(f"c{i}" for i in range(len(names) - len(kind.params)))]
        if names != wanted or len(names) > len(kind.params) + kind.constants:
            raise ValueError(f"{self.name}: parameters {names} should be {_accepted_parameters(kind)}, in this order")
        for name, value in self.params:
            _check_value(kind, name, value)

    @property
    def kind(self) -> RecipeKind:
        return RECIPES[self.name, self.version]

    def reseed(self, seed: int) -> Recipe:
        """The same with another seed; what holds of this one's parameters is not checked again."""
        if not 0 <= seed < SEEDS:
            raise ValueError(f"{self.name}: seed {seed} is not in 0 .. 2^63 - 1")
        other = object.__new__(Recipe)
        other.__dict__.update(self.__dict__, seed=seed)
        return other

    def text(self) -> str:
        """One line, the same for equal recipes, that `parse` reads back."""
        return " ".join([f"{self.name}/{self.version}", f"seed={self.seed}", *(f"{k}={v!r}" for k, v in self.params)])

    @staticmethod
    def parse(text: str) -> Recipe:
        """The recipe of a line as `text` writes it; parameters may stand in any order and be left to their default."""
        head = _HEAD.match(text) if len(text) <= _LONGEST else None
        if head is None:
            raise ValueError(f"recipe {text[:80]!r} should look like 'normal/1 seed=7 exponent=-3'")
        kind = _known(head[1], int(head[2]))
        rest = text[head.end() :]
        if rest and not rest.startswith(" "):
            raise ValueError(f"recipe {text[:80]!r}: the seed is followed by {rest[:20]!r}")
        params: dict[str, int | float] = {}
        for item in rest[1:].split(" ") if rest else ():
            name, value = _parse_parameter(kind, item)
            if name in params:
                raise ValueError(f"{kind.name}: {name} is given twice")
            params[name] = value
        return _with_defaults(kind, int(head[3]), params)


def recipe(name: str, seed: int = 0, **params: int | float) -> Recipe:
    """A recipe of the current version, with defaults for the parameters that are not given."""
    return _with_defaults(_known(name), seed, params)


def _with_defaults(kind: RecipeKind, seed: int, params: Mapping[str, int | float]) -> Recipe:
    filled: Mapping[str, int | float] = {**kind.defaults, **params}
    ordered = [*kind.params, *sorted(key for key in params if key not in kind.params)]
    return Recipe(kind.name, kind.version, seed, tuple((key, filled[key]) for key in ordered))


def _known(name: str, version: int | None = None) -> RecipeKind:
    """The kind of that name and version, the newest where none is given."""
    if name not in CURRENT:
        raise ValueError(f"unknown recipe {name!r}: known are {', '.join(CURRENT)}")
    if version is None:
        return CURRENT[name]
    if (name, version) not in RECIPES:
        known = ", ".join(f"{name}/{number}" for key, number in RECIPES if key == name)
        raise ValueError(f"unknown recipe {name}/{version}: known is {known}")
    return RECIPES[name, version]


def _accepted_parameters(kind: RecipeKind) -> str:
    """A kind's parameters for a message: 'exponent in -24..15, ulps in 1..8'."""
    parts = [f"{name} in {low}..{high}" for name, (low, high) in kind.params.items()]
    parts += [f"up to {kind.constants} constants c0, c1, .."] * bool(kind.constants)
    return ", ".join(parts) or "none"


def _is_constant(kind: RecipeKind, name: str) -> bool:
    return name in {f"c{i}" for i in range(kind.constants)}


def _check_value(kind: RecipeKind, name: str, value: int | float) -> None:
    if _is_constant(kind, name):
        if not isinstance(value, float) or not isfinite(value):
            raise ValueError(f"{kind.name}: {name}={value!r} should be a finite float")
        return
    low, high = kind.params[name]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{kind.name}: {name}={value!r} should be an integer in {low}..{high}")


def _parse_parameter(kind: RecipeKind, item: str) -> tuple[str, int | float]:
    """One 'name=value' of a text."""
    match = _PARAM.fullmatch(item)
    if match is None or (match[1] not in kind.params and not _is_constant(kind, match[1])):
        raise ValueError(
            f"{kind.name}: {item[:40]!r} is none of its parameters, which are: {_accepted_parameters(kind)}"
        )
    name, value = match[1], match[2]
    if _is_constant(kind, name):
        if not _FLOAT.fullmatch(value):
            raise ValueError(f"{kind.name}: {name}={value[:40]} should be a finite float")
        return name, float(value)
    if not _INT.fullmatch(value):
        raise ValueError(f"{kind.name}: {name}={value[:40]} should be an integer")
    return name, int(value)
