"""What a script lets outputs be is what the comparison lets them be."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.allowed import AllowedValues, allowed_values
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.reference.envelope import Expected, make_precision
from fuzz.target.contract import ENVELOPE, Contract, parse_contract, ulps

LIMIT = 65520.0
"""The least number that float16 rounds to infinity."""
DUE = [0.0, 1.0, 65504.0, 65519.0, LIMIT, 65600.0, 98304.0, 1e300, math.inf, math.nan]
SPREADS = [0.0, 10.0, 1e6, math.inf]
GOT = [0.0, 1.0, 65472.0, 65504.0, math.inf, -math.inf, math.nan]


def allows(allowed: AllowedValues, number: float) -> bool:
    """Whether the first element may be that number, as scripts decide it."""
    due, bound, others = allowed.due[0], allowed.bounds[0], allowed.others.get(0, ())
    if number == due or (math.isnan(number) and math.isnan(due)) or not math.isfinite(bound):
        return True
    return abs(number - due) <= bound or str(number) in map(str, others)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("contract", [ENVELOPE, parse_contract(ulps(2))])
def test_a_script_allows_what_the_comparison_allows(contract: Contract, sign: float) -> None:
    precision = make_precision("libm")
    for due, spread in product(DUE, SPREADS):
        expected = Expected(torch.tensor([sign * due]).double(), torch.tensor([spread]).double(), None)
        allowed = allowed_values(expected, named_dtype("float16"), precision, contract)
        for got in GOT:
            compared = compare_elements(torch.tensor([got], dtype=torch.float16), expected, precision, contract)
            assert allows(allowed, got) is not compared.wrong, (due, spread, got, allowed)


def test_an_integer_is_itself_or_any_where_rounding_decides_it() -> None:
    large = (1 << 62) + 1
    expected = Expected(torch.tensor([large, 3]), torch.tensor([0.0, 1.0]).double(), None)
    allowed = allowed_values(expected, named_dtype("int64"), make_precision("libm"), ENVELOPE)
    assert allowed == AllowedValues([large, 3], [0.0, math.inf])
