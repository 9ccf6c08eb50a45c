"""How much of an exact value an interval lets say."""

from __future__ import annotations

import pytest
import torch

from fuzz.model.finding import Element
from fuzz.oracles.comparison.interval_adjudication import add_enclosure
from fuzz.reference.interval import Interval

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("mid", "radius", "exact"),
    [
        (1 / 3, 0.0, "0.33333333333333331"),
        (1 / 3, 1e-6, "0.33333"),
        (1 / 3, 1e-3, ""),
        (1e-200, 1e200, ""),
        (0.0, 0.0, ""),
        (1.0, INF, ""),
        (1.0, NAN, ""),
        (INF, 0.0, ""),
    ],
)
def test_the_digits_that_are_certain_are_shown(mid: float, radius: float, exact: str) -> None:
    interval = Interval(*(torch.tensor([number], dtype=torch.float64) for number in (mid, radius)))
    assert add_enclosure(Element("y", (0,), "0.0", "0x0", "0.0"), interval).exact == exact
