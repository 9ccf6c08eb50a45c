"""A finding fits on one screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.model.case import Case, Split
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.layout import Layout
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact, recipe
from fuzz.report.entry_text import format_entry, headline


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


def test_what_other_backends_show_cannot_be_read_as_the_contrary(entry: Entry) -> None:
    answers = {"interpreter": "agrees", "cuda": "disagrees", "other": "cannot run it: no room"}
    seen = replace(entry.provenance, cross_checks=answers)
    lines = format_entry(replace(entry, provenance=seen), "a.yaml", "fuzz replay a.yaml").splitlines()
    assert "  others   interpreter shows it too; cuda does not show it; other cannot run it: no room" in lines


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


def test_the_screen_tells_the_severity_beside_the_typical_case(entry: Entry, case: Case) -> None:
    assert entry.finding
    values = {name: replace(value, values=recipe("normal")) for name, value in case.last.arguments.items()}
    randn = case.with_call(0, replace(case.last, dims={"N": 512}, arguments=values))
    grade = Grade("low", "ordinary", TypicalCase(randn, entry.finding, Rate(37, 60)), 1.31, "float32", "a reason")
    screen = format_entry(replace(entry, grade=grade), "p.yaml", "fuzz replay p.yaml")
    assert "severity low: 62 % of randn inputs of N=512 show it (37 of 60 drawn); a reason" in screen
    assert "torch in float32: 1.3 of the bound" in screen and "  typical case:\n    N=512\n" in screen
    padded = {**values, "x": replace(values["x"], layout=Layout(pad=1))}
    sliced = case.with_call(0, replace(randn.last, arguments=padded))
    shown = replace(grade, input_class="layout", typical=TypicalCase(sliced, entry.finding, Rate(60, 60)))
    assert "100 % of randn inputs of N=512 with x padded" in format_entry(replace(entry, grade=shown), "p.yaml", "")
    ones = {name: replace(value, values=recipe("ones")) for name, value in values.items()}
    scaled = case.with_call(0, replace(randn.last, arguments=ones))
    grade = replace(grade, input_class="special", typical=TypicalCase(scaled, entry.finding, Rate(1, 60)))
    assert "2 % of special inputs" in format_entry(replace(entry, grade=grade), "p.yaml", "")
    alone = replace(grade, typical=TypicalCase(scaled, entry.finding, Rate(0, 60)))
    said = "severity low: its own input is special; none of 60 drawn like it shows it"
    assert said in format_entry(replace(entry, grade=alone), "p.yaml", "")
    assert "no drawn input shows it" in format_entry(replace(entry, grade=replace(grade, typical=None)), "p.yaml", "")


def test_the_headline_names_the_wrong_results_before_what_makes_them_wrong() -> None:
    conflict = Finding("bounds", ("q_ptr",), "write-conflict", "two programs write one place")
    told = "bounds/write-conflict: two programs write one place"
    assert headline(conflict) == headline(conflict, ["layout dq drift", "nonsense"]) == told
    assert headline(conflict, ["accuracy dq value", "layout dq drift"]) == f"dq is wrong: {told}"
    assert headline(conflict, ["accuracy dq+dk value"]) == f"dq, dk are wrong: {told}"
    wrong = Finding("accuracy", ("dq",), "value", "dq: 1 of 2 elements wrong")
    assert headline(wrong, ["parity dk value"]) == "accuracy/value: dq: 1 of 2 elements wrong"
