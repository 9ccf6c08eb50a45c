"""Plots: every value has its place on the axis, and what is drawn lies inside the picture."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.web.pages.render import page
from fuzz.web.plots.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plot, index, plots
from fuzz.web.plots.data import ErrorCurve, OutputErrors, PlotData
from fuzz.web.plots.scales import Linear, Signed, along, sizes

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY = st.lists(st.floats(), min_size=1, max_size=40)


def panel(got: list[float], want: list[float], bound: list[float], inputs: dict[str, list[float]]) -> OutputErrors:
    count = len(got)
    wrong = tuple(not abs(a - b) <= c for a, b, c in zip(got, want, bound, strict=True))
    held = {name: tuple(values) for name, values in inputs.items()}
    ulps = tuple(abs(a - b) for a, b in zip(got, want, strict=True))
    values = tuple(range(count)), tuple(got), tuple(want), tuple(bound), ulps, wrong, held
    return OutputErrors("y", "float32", (count,), count, *values)


@given(ANY)
def test_a_scale_keeps_the_order_of_values_and_holds_all_of_them(values: list[float]) -> None:
    for scale in (along(values), sizes(values)):
        positive = isinstance(scale, Signed) and scale.positive
        finite = sorted(abs(value) if positive else value for value in values if math.isfinite(value))
        places = [scale.place(value) for value in finite]
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
        assert all(a <= b + 1e-9 for a, b in zip(places, places[1:], strict=False))


@given(ANY)
def test_ticks_lie_apart_and_say_what_they_stand_for(values: list[float]) -> None:
    for scale in (along(values), sizes(values)):
        ticks = scale.ticks
        assert ticks and len({text for _, text in ticks}) == len(ticks)
        assert all(abs(scale.place(float(text)) - place) < 0.02 for place, text in ticks)
        assert all(b - a > 0.02 for (a, _), (b, _) in zip(ticks, ticks[1:], strict=False))


def test_a_linear_scale_over_all_of_float64_does_not_overflow() -> None:
    scale = Linear(-1.7e308, 1.7e308)
    assert [scale.place(value) for value in (-1.7e308, 0.0, 1.7e308)] == [0.0, 0.5, 1.0]


def inside(plot: Plot) -> bool:
    return all(LEFT <= mark.x <= WIDTH - RIGHT and 0 <= mark.y <= HEIGHT - BOTTOM for mark in plot.marks)


@given(st.lists(st.tuples(st.floats(), FINITE, st.floats(min_value=0)), min_size=1, max_size=30))
def test_elements_lie_inside_whatever_their_values(rows: list[tuple[float, float, float]]) -> None:
    got, want, bound = map(list, zip(*rows, strict=True))
    for plot in plots(PlotData((panel(got, want, bound, {"x": want}),))):
        assert inside(plot)
        assert "nan" not in plot.bound + plot.allowed


def test_an_element_over_its_bound_lies_above_it_and_one_inside_below() -> None:
    (drawn,) = plots(PlotData((panel([1.0, 2.0], [1.0, 2.001], [1e-6, 1e-2], {}),)))
    tops = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h", drawn.bound)]
    assert [mark.kind for mark in drawn.marks] == ["right", "right"]
    assert drawn.marks[1].y > tops[1]
    (drawn,) = plots(PlotData((panel([1.0, 2.5], [1.0, 2.0], [1e-6, 1e-2], {}),)))
    tops = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h", drawn.bound)]
    assert drawn.marks[1].kind == "wrong" and drawn.marks[1].y < tops[1]


def test_what_is_not_finite_lies_on_a_tick_of_its_own_at_the_top() -> None:
    (drawn,) = plots(PlotData((panel([math.nan, 1.0], [0.5, 1.0], [1e-6, 1e-6], {}),)))
    assert drawn.marks[0].y < TOP
    assert (drawn.marks[0].y, "inf") in drawn.y_ticks


def test_the_error_is_drawn_along_an_input_that_varies_and_not_along_one_that_does_not() -> None:
    same = panel([1.0, 3.0], [1.0, 2.0], [0.1, 0.1], {"x": [-1.0, 4.0], "scale": [1.0, 1.0]})
    assert [plot.title for plot in plots(PlotData((same,)))] == ["y: error by element", "y: ULP against x"]


def test_an_output_without_any_error_is_not_drawn() -> None:
    assert plots(PlotData((panel([1.0, 3.0], [1.0, 3.0], [0.1, 0.1], {"x": [-1.0, 4.0]}),))) == []


def test_a_curve_takes_the_place_of_single_elements_and_marks_them() -> None:
    curve = ErrorCurve("y", "x", "float32", {"dy": "1.0"}, (-8.0, 0.0, 8.0), (1e9, 0.5, 0.0), (True, False, False))
    own = panel([1.0], [2.0], [0.1], {"x": [-4.0]})
    drawn = plots(PlotData((own,), (curve,)))[1]
    assert [mark.kind for mark in drawn.marks] == ["wrong", "right", "right", "here"]
    assert inside(drawn)


@pytest.mark.parametrize(("place", "shape", "due"), [(0, (), ()), (5, (2, 3), (1, 2)), (7, (2, 2, 2), (1, 1, 1))])
def test_places_have_the_index_of_the_array(place: int, shape: tuple[int, ...], due: tuple[int, ...]) -> None:
    assert index(place, shape) == due


def test_names_in_a_plot_are_text() -> None:
    hostile = '</svg><script>alert(1)</script>"'
    curve = ErrorCurve(hostile, hostile, hostile, {hostile: hostile}, (0.0, 1.0), (1.0, 2.0), (False, True))
    text = page("study.html", v=Shown(plots(PlotData((), (curve,)))))
    assert "<script" not in text and text.count("</svg>") == 1


class Shown:
    """What the template of a study takes."""

    script, unseen = "", ()

    def __init__(self, drawn: list[Plot]) -> None:
        self.plots = drawn
