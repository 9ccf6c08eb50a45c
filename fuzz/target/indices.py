"""Declares arguments that hold indices: whole numbers below the size of another dim, and sentinels where legal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Scalar
from fuzz.model.dims import Expression, Size, evaluate
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import Exact, Patched, Recipe, Values, exact, recipe
from fuzz.target.arguments import Numbers, OptionArgument, TensorArgument, tensor
from fuzz.target.shapes import Dim, Sizes

DTYPES = ("int64", "int32")
MAX_BOUND = 1 << 31
"""The largest bound that the recipes take."""
RECIPES = ((5, "indices"), (4, "indices_edges"), (1, "zeros"))
"""(weight, name) of the recipes that indices are drawn from."""

FAR = 1000
"""How far beyond its bound an invalid index is, beside the one at the bound."""


@dataclass(frozen=True)
class IndexArgument(TensorArgument):
    """A tensor of whole numbers from 0 to `below` - 1, an expression over dims, or the sentinel.

    `sentinel` is the number, or the name of the option whose value it is; see `indices`.
    """

    below: str = "1"
    sentinel: int | str | None = None

    fill: ClassVar[int] = 0

    @property
    def recipes(self) -> tuple[tuple[int, str], ...]:
        return RECIPES if self.sentinel is None else (*RECIPES, (5, "indices_sentinel"))

    @property
    def drawn_parameters(self) -> Mapping[str, tuple[str, int, int]]:
        return {"indices_sentinel": ("rarity", 1, 8)}

    @property
    def limits(self) -> tuple[str, ...]:
        return (self.below,)

    def legal_sentinel(self, options: Mapping[str, Scalar]) -> int | None:
        """The sentinel that is legal under these options, or None."""
        value = options.get(self.sentinel) if isinstance(self.sentinel, str) else self.sentinel
        return value if type(value) is int else None

    def legal_values(self, value: Argument, call: Call) -> Values:
        """Indices that a smaller dim, another option or a general recipe made illegal are moved to the nearest one."""
        bound, sentinel = max(evaluate(self.below, call.dims), 1), self.legal_sentinel(call.options)
        if isinstance(value.values, Exact):
            return Exact(_legal_bits(value.values.bits, value.dtype, bound, sentinel), value.dtype)
        if isinstance(value.values, Patched):
            indices, bits = zip(*value.values.overrides, strict=True)
            overrides = zip(indices, _legal_bits(bits, value.dtype, bound, sentinel), strict=True)
            return Patched(legal_recipe(value.values.recipe, bound, sentinel), tuple(overrides))
        return legal_recipe(value.values, bound, sentinel)

    def invalid_values(self, numbers: Numbers, call: Call) -> Iterator[tuple[str, str, Numbers]]:
        """The bound, a number far beyond it and a negative one, each in place of every index."""
        bound, sentinel = evaluate(self.below, call.dims), self.legal_sentinel(call.options)
        negative = -2 if sentinel == -1 else -1
        legal = f"an index is from 0 to {bound - 1}" + ("" if sentinel is None else f", or {sentinel}")
        for name, number in (("bound", bound), ("beyond", bound + FAR), ("negative", negative)):
            if numbers.size and number != sentinel:
                yield name, f"is {number} where {legal}", np.full_like(numbers, number)

    def check(self, name: str, least: Mapping[str, int], options: Mapping[str, OptionArgument]) -> None:
        super().check(name, least, options)
        if evaluate(self.below, least) < 1:
            raise TargetError(f"argument {name!r} has no legal index at the smallest dims")
        if isinstance(self.sentinel, str) and self.sentinel not in options:
            raise TargetError(f"argument {name!r} has its sentinel from {self.sentinel!r}, which is no option")
        choices = options[self.sentinel].choices if isinstance(self.sentinel, str) else (self.sentinel,)
        for sentinel, dtype in product(choices, self.dtypes):
            low, high = limits_of(dtype)
            if type(sentinel) is int and not low <= sentinel <= high:
                raise TargetError(f"argument {name!r} has the sentinel {sentinel}; one of {dtype} is {low} to {high}")


def indices(
    *shape: Dim | Sizes,
    below: Expression | int,
    sentinel: int | str | None = None,
    dtypes: Iterable[str] = DTYPES,
    contiguous: bool = False,
) -> IndexArgument:
    """A tensor of whole numbers from 0 to below - 1, or the sentinel.

    `sentinel` is a number that is always legal, or the name of the option whose value is (where that is an int and no
    bool; other values of the option mean that no sentinel is legal). TargetError for a dtype that is not an integer.
    """
    plain = tensor(*shape, dtypes=dtypes)
    check_integers("indices", plain.dtypes)
    if isinstance(below, int) and below < 1:
        raise TargetError(f"indices(below={below}): no index is legal")
    text = below.text if isinstance(below, Expression) else str(below)
    sizes = (*plain.sizes, *((below,) if isinstance(below, Size) else ()))
    return IndexArgument(
        plain.shape, plain.dtypes, sizes, text, sentinel,
        contiguous=contiguous, others=plain.others, runs=plain.runs,
    )  # fmt: skip


def check_integers(kind: str, dtypes: Iterable[str]) -> None:
    """TargetError for a dtype that is not an integer."""
    for name in dtypes:
        if named_dtype(name).kind not in ("int", "uint"):
            raise TargetError(f"{kind}() are integers, not {name}")


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer dtype that recipes of indices make."""
    kind = named_dtype(dtype)
    return max(-kind.sign_mask, -MAX_BOUND), min(kind.largest_bits, MAX_BOUND - 1)


def _legal_bits(bits: tuple[int, ...], dtype: str, bound: int, sentinel: int | None) -> tuple[int, ...]:
    kind = named_dtype(dtype)
    numbers = from_bits(np.array(bits, dtype=kind.unsigned), kind)
    clipped = np.clip(numbers, 0, bound - 1)
    if sentinel is not None:
        clipped = np.where(numbers == sentinel, numbers, clipped)
    return exact(np.asarray(to_bits(clipped, kind)), kind).bits


def legal_recipe(values: Recipe, bound: int, sentinel: int | None) -> Recipe:
    """The recipe of indices below a bound that is like another one."""
    if values.name == "zeros":
        return values
    below = min(bound, MAX_BOUND)
    if values.name == "indices_sentinel" and sentinel is not None:
        return recipe(values.name, values.seed, **{**dict(values.params), "below": below, "sentinel": sentinel})
    return recipe(values.name if values.name == "indices_edges" else "indices", values.seed, below=below)
