"""Brute force tells a mutant that is wrong from one that rounds otherwise."""

import torch
import triton
import triton.language as tl

from benchmarks.mutations.brute_force import (
    EQUIVALENT,
    LIVE,
    STILLBORN,
    UNDECIDED,
    Behaviour,
    Judgement,
    describe_error,
    judge,
    record,
)
from fuzz import size, target, tensor
from fuzz.backends import backend


def test_errors_are_compared_with_those_of_the_good_kernel():
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    good = torch.tensor([1.0, 2.0 + 2e-6], dtype=torch.float32)
    assert not describe_error("y", good, good + 5e-6, exact)
    assert describe_error("y", good, good + 1e-4, exact).startswith("y errs by")


def test_an_exact_kernel_may_err_by_some_units_in_the_last_place():
    exact = torch.tensor([1.0], dtype=torch.float64)
    good = exact.float()
    assert not describe_error("y", good, good + 2**-23, exact)
    assert describe_error("y", good, good + 2**-19, exact)


def test_what_is_finite_is_compared():
    exact, good = torch.tensor([1.0, torch.inf], dtype=torch.float64), torch.tensor([1.0, torch.inf])
    assert describe_error("y", good, torch.tensor([1.0, 3.0]), exact) == "y is not finite elsewhere"
    assert describe_error("y", torch.tensor([3]), torch.tensor([4]), torch.tensor([3])) == "y differs"


N = size("N", 1, 64)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x + x))
def double(x):
    return dict(y=x * 2)


@target(name="double", x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x + x))
def wrong(x):
    return dict(y=x + x + (1e-3 if len(x) > 7 else 0.0))


@target(name="double", x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x + x))
def written_otherwise(x):
    return dict(y=x + x)


def test_a_mutant_is_judged_by_cases():
    good = record(double, 40)
    assert {one.kind for one in good} == {"Returned"}
    assert judge(written_otherwise, good, 60.0) == Judgement(EQUIVALENT, 40)
    found = judge(wrong, good, 60.0)
    assert found.name == LIVE
    assert "y errs by" in found.why


def test_a_mutant_whose_cases_have_not_all_run_is_undecided():
    found = judge(written_otherwise, record(double, 3), 0.0)
    assert found == Judgement(UNDECIDED, 0, "the cases were not done within 0 s")


def test_another_outcome_is_live():
    good = [Behaviour("Rejected", {})] * 3
    assert judge(double, good, 60.0) == Judgement(LIVE, 1, "Returned instead of Rejected")


@triton.jit
def copy_kernel(y, x, n, ONLY_FLOAT32: tl.constexpr, BLOCK: tl.constexpr):
    if ONLY_FLOAT32:
        tl.static_assert(x.dtype.element_ty == tl.float32)
    places = tl.arange(0, BLOCK)
    tl.store(y + places, tl.load(x + places, mask=places < n), mask=places < n)


def copied(x, only_float32):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(1,)](y, x, len(x), only_float32, BLOCK=64)
    return dict(y=y)


@target(name="copy", x=tensor(N), dtypes=("float32", "bfloat16"), reference=lambda x: dict(y=x * 1))
def copy(x):
    return copied(x, False)


@target(name="copy", x=tensor(N), dtypes=("float32", "bfloat16"), reference=lambda x: dict(y=x * 1))
def copy_of_float32(x):
    return copied(x, True)


def test_what_does_not_compile_in_some_dtype_is_not_live():
    backend("cpu").prepare()
    found = judge(copy_of_float32, record(copy, 10), 60.0)
    assert (found.name, found.cases) == (STILLBORN, 10)
