"""Numbers between two doubles keep on which side of a tie they are."""

from __future__ import annotations

from math import inf

import mpmath
import torch

from fuzz.model.dtypes import dtype as named_dtype
from fuzz.sweep.correct_rounding import odd_double
from fuzz.sweep.ulps import rounded


def test_rounding_to_odd_keeps_a_number_beside_a_tie_off_it() -> None:
    kind, tie = named_dtype("bfloat16"), 1 + 2.0**-8
    with mpmath.workdps(60):
        above, below = mpmath.mpf(tie) + mpmath.mpf(2) ** -120, mpmath.mpf(tie) - mpmath.mpf(2) ** -120
        doubles = torch.tensor([odd_double(above), odd_double(below), odd_double(mpmath.mpf(tie))], dtype=torch.float64)
    assert float(above) == float(below) == tie
    assert rounded(doubles, kind).tolist() == [1 + 2.0**-7, 1.0, 1.0]
    assert odd_double(mpmath.mpf("inf")) == inf
