"""Cases between two least cases change magnitudes by equal factors, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import exact
from fuzz.triage.intermediate_cases import intermediate_cases

KIND = named_dtype("float32")


def make_case(*numbers: float, option: int = 0, size: int = 3) -> Case:
    """One call with so many numbers, repeated up to the size."""
    values = exact(to_bits([numbers[i % len(numbers)] for i in range(size)], KIND), KIND)
    return Case("target", (Call({"N": size}, {"x": Argument(("N",), "float32", values)}, {"option": option}),))


def numbers_of(case: Case) -> list[float]:
    """Those of x."""
    return [float(number) for number in from_bits(case.last.tensors["x"].bits(case.last.dims), KIND)]


def test_numbers_go_from_one_to_the_other_by_equal_factors() -> None:
    between = intermediate_cases(make_case(1.0, -(2.0**-8), 0.0), make_case(2.0**16, -(2.0**8), 0.0, option=1))
    for step, case in enumerate(between):
        assert numbers_of(case) == pytest.approx([2.0 ** (2 * step), -(2.0 ** (2 * step - 8)), 0.0])
        assert case.last.options == {"option": 1}
    assert len(between) > 3


@pytest.mark.parametrize("other", [make_case(-2.0), make_case(0.0), make_case(float("inf")), make_case(2.0, size=4)])
def test_no_way_leads_over_zero_infinity_or_another_size(other: Case) -> None:
    assert intermediate_cases(make_case(2.0), other) == intermediate_cases(other, make_case(2.0)) == ()


def test_no_way_leads_from_or_to_several_calls() -> None:
    one = make_case(2.0)
    two = replace(one, calls=one.calls * 2)
    assert intermediate_cases(one, two) == intermediate_cases(two, one) == ()
