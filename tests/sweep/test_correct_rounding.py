"""Numbers between two doubles keep on which side of a tie they are; spot checks reach from the first to the last."""

from __future__ import annotations

from math import inf
from pathlib import Path

import mpmath
import pytest
import torch

from fuzz.model.dtypes import dtype as named_dtype
from fuzz.reference.envelope import make_precision
from fuzz.sweep.correct_rounding import SPOT, CorrectRounding, odd_double
from fuzz.sweep.ulps import rounded
from fuzz.target.loader import load

TOYS = str(Path(__file__).parent / "toy_targets.py")


def test_rounding_to_odd_keeps_a_number_beside_a_tie_off_it() -> None:
    kind, tie = named_dtype("bfloat16"), 1 + 2.0**-8
    with mpmath.workdps(60):
        above, below = mpmath.mpf(tie) + mpmath.mpf(2) ** -120, mpmath.mpf(tie) - mpmath.mpf(2) ** -120
        doubles = torch.tensor([odd_double(above), odd_double(below), odd_double(mpmath.mpf(tie))], dtype=torch.float64)
    assert float(above) == float(below) == tie
    assert rounded(doubles, kind).tolist() == [1 + 2.0**-7, 1.0, 1.0]
    assert odd_double(mpmath.mpf("inf")) == inf


@pytest.mark.parametrize("count", [1, 15, 16, 17, 31, 33, 1000])
def test_spot_checks_include_the_first_and_the_last_value(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference, log(1 + exp(x)), is infinite at each; to the arithmetic that is asked, at all but the last."""
    rounding = CorrectRounding(load(f"{TOYS}:softplus"), "y", make_precision("libm"))
    asked: list[list[float]] = []

    def exact(numbers: dict[str, list[float]], wanted: int, time_left: object) -> list[float]:
        asked.append(numbers["x"])
        return [x if x == 1000 + count - 1 else inf for x in numbers["x"]]

    monkeypatch.setattr(rounding, "_exact", exact)
    rounding.rounded({"x": 1000 + torch.arange(count, dtype=torch.float64)}, named_dtype("float32"))
    chosen = next(filter(None, asked))
    assert len(set(chosen)) == len(chosen) == min(count, SPOT) and {chosen[0], chosen[-1]} == {1000, 999 + count}
    assert sum(map(len, asked)) == count
