"""A finding fits on one screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.model.case import Case, Split
from fuzz.model.entry import Entry
from fuzz.model.layout import Layout
from fuzz.model.recipes import Exact
from fuzz.report.text import format_entry


def test_a_finding_is_told_on_one_screen(entry: Entry) -> None:
    lines = format_entry(replace(entry, why="w"), "a/path.yaml", "fuzz replay a/path.yaml").splitlines()
    assert lines == [
        "gelu_bw (planted: erf_saturates)   accuracy/sign: dx: 1 of 2 elements wrong",
        "",
        "  N=2",
        "    dy  float32 N = normal/1 seed=7 exponent=0",
        "    x   float32 N = [1.0, -4.0]",
        "",
        "  dx[1]  got 0.5 (0x3f000000)  want -0.5  3 ulp off, 1e-09 allowed",
        "  1 of 2 elements disagree",
        "",
        "  seen     backend cpu; 10/10 runs; verdict unadjudicated",
        "  status   open: w",
        "  saved    a/path.yaml",
        "  repeat   fuzz replay a/path.yaml",
    ]


def test_calls_splits_and_layouts_are_told(case: Case) -> None:
    call = case.last
    moved = call.with_argument("x", replace(call.arguments["x"], layout=Layout(step=2, offset=1)))
    text = format_entry(Entry(replace(case, calls=(call, moved), split=Split(0, 2, 3, 4))), "p", "r")
    assert "call 2 of 2: N=2" in text and "strided (step=2, offset=1)" in text
    assert "split: rows 0..1 again, with 3 other rows before and 4 after" in text


@pytest.mark.parametrize("count", [1, 12, 500])
def test_a_screen_stays_a_screen(case: Case, count: int) -> None:
    words = tuple(range(count))
    large = replace(case.last.arguments["x"], values=Exact(words, "float32"))
    made = case.with_call(0, replace(case.last, dims={"N": count}).with_argument("x", large))
    lines = format_entry(Entry(made), "p", "r").splitlines()
    assert len(lines) < 40 and max(map(len, lines)) < 300
