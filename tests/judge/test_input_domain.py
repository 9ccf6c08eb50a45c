"""Grading changes the layouts of a case, and keeps the values of its elements."""

from __future__ import annotations

import numpy as np

from fuzz.judge.input_domain import contiguous
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import exact


def test_exact_values_that_a_layout_repeats_are_written_out() -> None:
    one = exact(np.array([0x3F800000], dtype=np.uint32), dtype("float32"))
    x = Argument(("N",), "float32", one, Layout(expand=(0,)))
    plain = contiguous(Case("t", (Call({"N": 2}, {"x": x}),))).last.arguments["x"]
    assert plain.layout == CONTIGUOUS
    assert plain.bits({"N": 2}).tolist() == [0x3F800000, 0x3F800000]
