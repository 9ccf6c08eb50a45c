"""Indices: the argument kind of whole numbers that point into another dim, and sentinels where these are legal.

Every case that is drawn or tried holds legal indices only: `legal` moves those that a smaller dim, another option or a
general recipe made illegal, and keeps recipes of locations at the places of their grids. A kernel may read anywhere
when it is given an index that its contract rules out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dims import Expression, Size, evaluate
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import Exact, Patched, Recipe, Values, exact, recipe
from fuzz.target.locations import fitted
from fuzz.target.spec import Target, TensorArgument, tensor

DTYPES = ("int64", "int32")
RECIPES = ("indices", "indices_edges", "indices_sentinel")
TOP = 1 << 31
"""The largest bound that the recipes take."""


def indices(
    *shape: Expression | int,
    below: Expression | int,
    sentinel: int | str | None = None,
    dtypes: Iterable[str] = DTYPES,
) -> TensorArgument:
    """A tensor of whole numbers from 0 to below - 1, or the sentinel.

    `sentinel` is a number that is always legal, or the name of the option whose value is (where that is an int and no
    bool; other values of the option mean that no sentinel is legal). TargetError for a dtype that is not an integer.
    """
    given = tensor(*shape, dtypes=dtypes)
    for name in given.dtypes:
        if named_dtype(name).kind not in ("int", "uint"):
            raise TargetError(f"indices() are integers, not {name}")
    if isinstance(below, int) and below < 1:
        raise TargetError(f"indices(below={below}): no index is legal")
    text = below.text if isinstance(below, Expression) else str(below)
    sizes = (*given.sizes, *((below,) if isinstance(below, Size) else ()))
    return replace(given, sizes=sizes, below=text, sentinel=sentinel)


def sentinel_of(spec: TensorArgument, options: Mapping[str, Scalar]) -> int | None:
    """The sentinel that is legal under these options, or None."""
    value = options.get(spec.sentinel) if isinstance(spec.sentinel, str) else spec.sentinel
    return value if type(value) is int else None


def legal(case: Case, target: Target) -> Case:
    """The case with every index legal for its dims and options; the same case where all are."""
    for index, call in enumerate(case.calls):
        made = legal_call(call, target)
        if made is not call:
            case = case.with_call(index, made)
    return case


def legal_call(call: Call, target: Target) -> Call:
    """One call of `legal`."""
    for name, spec in target.tensors.items():
        if spec.below and name in call.arguments:
            value = call.arguments[name]
            bound = max(evaluate(spec.below, call.dims), 1)
            values = _legal(value, bound, sentinel_of(spec, call.options))
            if values != value.values:
                call = call.with_argument(name, replace(value, values=values))
        elif spec.grids and name in call.arguments:
            value = call.arguments[name]
            values = fitted(value, spec, call)
            call = call if values == value.values else call.with_argument(name, replace(value, values=values))
    return call


def _legal(value: Argument, bound: int, sentinel: int | None) -> Values:
    if isinstance(value.values, Exact):
        return Exact(_legal_bits(value.values.bits, value.dtype, bound, sentinel), value.dtype)
    if isinstance(value.values, Patched):
        places, bits = zip(*value.values.overrides, strict=True) if value.values.overrides else ((), ())
        overrides = zip(places, _legal_bits(bits, value.dtype, bound, sentinel), strict=True)
        return Patched(_legal_recipe(value.values.recipe, bound, sentinel), tuple(overrides))
    return _legal_recipe(value.values, bound, sentinel)


def _legal_bits(bits: tuple[int, ...], dtype: str, bound: int, sentinel: int | None) -> tuple[int, ...]:
    kind = named_dtype(dtype)
    numbers = from_bits(np.array(bits, dtype=kind.unsigned), kind)
    moved = np.clip(numbers, 0, bound - 1)
    if sentinel is not None:
        moved = np.where(numbers == sentinel, numbers, moved)
    return exact(np.asarray(to_bits(moved, kind)), kind).bits


def _legal_recipe(made: Recipe, bound: int, sentinel: int | None) -> Recipe:
    if made.name == "zeros":
        return made
    below = min(bound, TOP)
    if made.name == "indices_sentinel" and sentinel is not None:
        return recipe(made.name, made.seed, **{**dict(made.params), "below": below, "sentinel": sentinel})
    return recipe(made.name if made.name == "indices_edges" else "indices", made.seed, below=below)
