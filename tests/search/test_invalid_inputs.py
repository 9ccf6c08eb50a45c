"""Which inputs are derived: each is ruled out by the declaration, in one argument, and says how."""

from __future__ import annotations

import numpy as np

from fuzz.model.case import Argument, Call
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits
from fuzz.model.recipes import recipe
from fuzz.search.invalid_inputs import InvalidInput, derive_invalid_inputs
from fuzz.target.arguments import TensorArgument, size, tensor
from fuzz.target.indices import indices
from fuzz.target.prefix_sums import prefix_sums
from fuzz.target.spec import Target, declare

M, N, V = size("M", 1, 9), size("N", 1, 9), size("V", 1, 9)


def make_target(**arguments: TensorArgument) -> Target:
    def launcher(**_: object) -> dict[str, object]:
        return {}

    return declare(launcher, dims=(M, N, V), **arguments)


def derive(target: Target, **values: tuple[str, str]) -> list[InvalidInput]:
    """The invalid inputs of a call with M=3, N=4, V=5; `values` are (dtype, recipe) by argument."""
    arguments = {
        name: Argument(target.tensors[name].shape, dtype, recipe(values_of))
        for name, (dtype, values_of) in values.items()
    }
    return list(derive_invalid_inputs(Call({"M": 3, "N": 4, "V": 5}, arguments), target))


def numbers(invalid: InvalidInput) -> np.ndarray:  # type: ignore[type-arg]
    value = invalid.call.arguments[invalid.argument]
    return from_bits(value.bits(invalid.call.dims), named_dtype(value.dtype))


def said(found: list[InvalidInput], kind: str) -> list[str]:
    return [each.what for each in found if each.kind == kind]


def test_dims_that_something_else_fixes_are_short_by_one() -> None:
    found = derive(make_target(x=tensor(M, N), weight=tensor(N)), x=("float32", "ones"), weight=("float32", "ones"))
    assert said(found, "short") == ["x has 3 elements in dim 1 where N = 4", "weight has 3 elements where N = 4"]
    short = next(each for each in found if each.argument == "weight")
    assert resolve(short.call.arguments["weight"].shape, short.call.dims) == (3,)
    assert resolve(short.call.arguments["x"].shape, short.call.dims) == (3, 4)


def test_a_dim_of_a_fixed_size_is_short_and_one_that_may_be_1_is_not() -> None:
    found = derive(make_target(x=tensor(M, 2), y=tensor(M)), x=("float32", "ones"), y=("float32", "ones"))
    assert "x has 1 element in dim 1 where 2" in said(found, "short")
    target = make_target(x=tensor(N), gate=tensor(M | 1), y=tensor(M))
    call = Call(
        {"M": 2, "N": 4},
        {name: Argument(target.tensors[name].shape, "float32", recipe("ones")) for name in ("gate", "y")},
    )
    assert [each.argument for each in derive_invalid_inputs(call, target) if each.kind == "short"] == ["y"]


def test_ranks_that_are_declared_are_right() -> None:
    values = dict(x=("float32", "ones"), y=("float32", "ones"))
    found = derive(make_target(x=tensor(M, N), y=tensor(N)), **values)
    assert said(found, "rank") == [
        "x has shape (4) where (M, N) is (3, 4)",
        "x has shape (3, 4, 1) where (M, N) is (3, 4)",
        "y has shape () where (N) is (4)",
        "y has shape (4, 1) where (N) is (4)",
    ]
    found = derive(make_target(x=tensor(M, N) | tensor(N), y=tensor(N)), **values)
    assert "x has shape (4) where (M, N) is (3, 4)" not in said(found, "rank")


def test_dtypes_that_are_not_declared() -> None:
    target = make_target(x=tensor(N, dtypes=("float32", "float64")), index=indices(N, below=V))
    found = derive(target, x=("float32", "ones"), index=("int64", "zeros"))
    assert said(found, "dtype") == [
        "x is int64 where float32, float64 is declared",
        "index is float32 where int64, int32 is declared",
    ]
    assert numbers(next(each for each in found if each.kind == "dtype")).tolist() == [1, 1, 1, 1]


def test_indices_at_their_bound_beyond_it_and_below_0() -> None:
    found = derive(make_target(index=indices(N, below=V), x=tensor(N)), index=("int64", "zeros"), x=("float32", "ones"))
    invalid = [each for each in found if each.kind == "index"]
    assert [numbers(each).tolist() for each in invalid] == [[5] * 4, [1005] * 4, [-1] * 4]
    assert invalid[0].what == "index is 5 where an index is from 0 to 4"


def test_a_sentinel_is_legal_and_a_number_that_the_dtype_lacks_is_left_out() -> None:
    target = make_target(index=indices(N, below=V, sentinel=-1, dtypes=("int8",)), x=tensor(N))
    found = derive(target, index=("int8", "zeros"), x=("float32", "ones"))
    assert [numbers(each)[0] for each in found if each.kind == "index"] == [5, -2]


def test_prefix_sums_beyond_their_total() -> None:
    target = make_target(begins=prefix_sums(M + 1, total=N), x=tensor(N))
    found = derive(target, begins=("int32", "zeros"), x=("float32", "ones"))
    assert said(found, "index") == [
        "begins ends at 5 where prefix sums go from 0 to 4",
        "begins ends at 1004 where prefix sums go from 0 to 4",
        "begins begins at -1 where prefix sums go from 0 to 4",
    ]
