"""Declares arguments that hold prefix sums: where each part of a ragged batch begins, as `cu_seqlens` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call
from fuzz.model.dims import Expression, Size, evaluate, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.layout import Layout
from fuzz.model.recipes import Recipe, Values, bits_of, exact
from fuzz.target.arguments import Numbers, OptionArgument, TensorArgument, tensor
from fuzz.target.indices import DTYPES, FAR, RECIPES, check_integers, legal_recipe


@dataclass(frozen=True)
class PrefixSumArgument(TensorArgument):
    """Whole numbers that do not decrease along the last dim, from 0 to `total`, an expression over dims.

    A recipe makes the places where parts begin, in any order; the legal values are listed, in theirs.
    """

    total: str = "0"

    fill = 0

    @property
    def recipes(self) -> tuple[tuple[int, str], ...]:
        return RECIPES

    @property
    def limits(self) -> tuple[str, ...]:
        return (self.total,)

    def legal_layout(self, layout: Layout, *, written: bool = False) -> Layout:
        return replace(super().legal_layout(layout, written=written), expand=())

    def legal_values(self, value: Argument, call: Call) -> Values:
        """The numbers in order, none beyond the total; the first one is 0 and the last one the total."""
        total, kind = max(evaluate(self.total, call.dims), 0), named_dtype(value.dtype)
        check_total(total, (value.dtype,))
        values, shape = value.values, resolve(value.shape, call.dims)
        if isinstance(values, Recipe):
            values = legal_recipe(values, total + 1, None)
        bits = bits_of(values, shape, kind)
        numbers = np.sort(np.clip(from_bits(bits, kind).astype(np.int64), 0, total), axis=-1)
        numbers[..., :1], numbers[..., -1:] = 0, total
        return exact(np.asarray(to_bits(numbers, kind)).reshape(-1), kind)

    def plain_numbers(self, shape: tuple[int, ...], dims: Mapping[str, int]) -> Numbers:
        parts = max(shape[-1] - 1, 1)
        return np.broadcast_to(max(evaluate(self.total, dims), 0) * np.arange(shape[-1]) // parts, shape).copy()

    def invalid_values(self, numbers: Numbers, call: Call) -> Iterator[tuple[str, str, Numbers]]:
        """A last number beyond the total, and a negative first one."""
        total = evaluate(self.total, call.dims)
        for name, place, number in (("end", -1, total + 1), ("far", -1, total + FAR), ("begin", 0, -1)):
            if numbers.size:
                changed = numbers.copy()
                changed[..., place] = number
                end = "ends at" if place else "begins at"
                yield name, f"{end} {number} where prefix sums go from 0 to {total}", changed

    def check(self, name: str, least: Mapping[str, int], options: Mapping[str, OptionArgument]) -> None:
        super().check(name, least, options)
        if not self.shape or evaluate(self.shape[-1], least) < 2:
            raise TargetError(f"argument {name!r} has less than the two elements 0 and {self.total}: write S + 1")


def prefix_sums(
    *shape: Expression | int, total: Expression | int, dtypes: Iterable[str] = DTYPES[::-1], contiguous: bool = False
) -> PrefixSumArgument:
    """A tensor of whole numbers that do not decrease along its last dim: 0 first, `total` last.

    Neighbours may be equal: parts may be empty. TargetError for a dtype that is no integer, or cannot hold the total.
    """
    plain = tensor(*shape, dtypes=dtypes)
    check_integers("prefix_sums", plain.dtypes)
    text = total.text if isinstance(total, Expression) else str(total)
    # What an expression comes to depends on dims that other arguments declare.
    if isinstance(total, Size | int):
        check_total(total.high if isinstance(total, Size) else total, plain.dtypes)
    sizes = (*plain.sizes, *((total,) if isinstance(total, Size) else ()))
    return PrefixSumArgument(plain.shape, plain.dtypes, sizes, text, contiguous=contiguous)


def check_total(total: int, dtypes: Iterable[str]) -> None:
    """TargetError for a dtype in which the last number cannot be the total."""
    for dtype in dtypes:
        most = named_dtype(dtype).largest_bits
        if total > most:
            raise TargetError(f"prefix_sums() end at a total of up to {total}, and {dtype} ends at {most}")
