"""What a case has off its default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fuzz import option, size, target, tensor
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype, from_bits
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import recipe
from fuzz.target.spec import Target
from fuzz.triage.conditions import describe_conditions, non_defaults


def test_what_a_case_has_off_its_default_is_what_its_cause_may_need(
    layernorm: Target, two_cases: tuple[Case, Case]
) -> None:
    call = two_cases[0].last
    plain = {name: replace(value, dtype="float32", layout=CONTIGUOUS) for name, value in call.arguments.items()}
    plain["x"] = replace(plain["x"], dtype="bfloat16", layout=Layout(pad=2))
    case = replace(two_cases[0], calls=(replace(call, arguments=plain, options={**call.options, "eps": 1e-12}),))
    assert non_defaults(case, layernorm) == {"x dtype", "x layout", "eps"}


N = size("N", 1, 64)


def product(x: torch.Tensor, factor: int) -> dict[str, torch.Tensor]:
    return dict(y=x * factor)


scaled: Target = target(
    x=tensor(N), factor=option(1, 2, 4, 8), dtypes=("float32", "bfloat16", "float16"), reference=product
)(product)


def largest(case: Case) -> float:
    x = case.last.tensors["x"]
    return float(np.abs(from_bits(x.bits(case.last.dims), dtype(x.dtype)).astype(np.float64)).max())


def scaled_by(factor: int, of: str, *, exponent: int) -> Case:
    x = Argument(("N",), of, recipe("constant", 1, mantissa=1, exponent=exponent))
    return Case("scaled", (Call({"N": 1}, {"x": x}, {"factor": factor}),))


@pytest.mark.parametrize(
    ("with_others", "wanted"), [(False, "only with factor=8"), (True, "with factor=8, not with factor=1")]
)
def test_an_alternative_that_other_values_show_does_not_agree(with_others: bool, wanted: str) -> None:
    """Each factor but 1 is wrong, beyond a limit of its own: 2 is in the unshrunk case only, 4 with usual values."""
    limits = {1: float("inf"), 2: 100.0, 4: 0.6, 8: 0.1}

    def shows(case: Case) -> bool:
        return largest(case) > limits[int(case.last.options["factor"])]

    least, unshrunk = (scaled_by(8, "float32", exponent=power) for power in (-1, 8))
    more: dict[str, Any] = {"shows": shows, "unshrunk": unshrunk} if with_others else {}
    assert describe_conditions(least, scaled, lambda case: not shows(case), **more) == (wanted,)


def test_a_dtype_whose_numbers_have_more_digits_may_need_other_values() -> None:
    """Sums in the dtype of x: of the least case's numbers that of float16 is exact."""

    def shows(case: Case) -> bool:
        digits = {"float32": 24, "bfloat16": 8, "float16": 11}[case.last.tensors["x"].dtype]
        x = case.last.tensors["x"]
        numbers = from_bits(x.bits(case.last.dims), dtype(x.dtype)).astype(np.float64)
        return digits < 24 and bool((np.ldexp(numbers, 9) % 1 != 0).any() or digits == 8)

    least = scaled_by(1, "bfloat16", exponent=0)
    assert describe_conditions(least, scaled, lambda case: not shows(case)) == ("only with x in bfloat16",)
    more = describe_conditions(least, scaled, lambda case: not shows(case), shows=shows, unshrunk=least)
    assert more == ("with x in bfloat16, not in float32",)
