"""What is plotted lies inside the picture, and every text is escaped."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fuzz.oracles.diagnosis import DiagnosisContext
from fuzz.report.plotting.plot_data import NOT_FINITE, Plot
from fuzz.web.entry_plots.client import PlotResult
from fuzz.web.entry_plots.error_plots import ErrorCurve, error_in_ulp, make_plots, plot_curve, unravel
from fuzz.web.pages.render import render

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def seen(got: list[float], want: list[float], bound: list[float], inputs: dict[str, list[float]]) -> DiagnosisContext:
    """A case with one output."""
    parts = [{"y": torch.tensor(values, dtype=torch.float64)} for values in (got, want, bound)]
    wrong = ~((parts[0]["y"] - parts[1]["y"]).abs() <= parts[2]["y"])
    given = {name: torch.tensor(values, dtype=torch.float64) for name, values in inputs.items()}
    return DiagnosisContext({}, given, {"y": torch.tensor(got)}, *parts, {"y": wrong} if wrong.any() else {})


def inside(plot: Plot) -> bool:
    return all(0 <= marker.x <= 1 and 0 <= marker.y <= NOT_FINITE for marker in plot.markers)


@given(st.lists(st.tuples(st.floats(), FINITE, st.floats(min_value=0)), min_size=1, max_size=30))
def test_elements_lie_inside_whatever_their_values(rows: list[tuple[float, float, float]]) -> None:
    got, want, bound = map(list, zip(*rows, strict=True))
    for plot in make_plots(seen(got, want, bound, {"x": want})):
        assert inside(plot)
        assert not any(math.isnan(share) for line in plot.lines for point in line.points for share in point)


def test_an_element_over_its_bound_lies_above_it_and_one_inside_below() -> None:
    (drawn,) = make_plots(seen([1.0, 2.0], [1.0, 2.001], [1e-6, 1e-2], {}))
    bounds = [y for _, y in drawn.lines[0].points[::2]]
    assert [marker.kind for marker in drawn.markers] == ["right", "right"]
    assert drawn.markers[1].y < bounds[1]
    (drawn,) = make_plots(seen([1.0, 2.5], [1.0, 2.0], [1e-6, 1e-2], {}))
    bounds = [y for _, y in drawn.lines[0].points[::2]]
    assert drawn.markers[1].kind == "wrong" and drawn.markers[1].y > bounds[1]


def test_what_is_not_finite_lies_on_a_tick_of_its_own_at_the_top() -> None:
    (drawn,) = make_plots(seen([math.nan, 1.0], [0.5, 1.0], [1e-6, 1e-6], {}))
    assert drawn.markers[0].y > 1
    assert (drawn.markers[0].y, "inf") in drawn.y_ticks


def test_the_error_is_drawn_along_an_input_that_varies_and_not_along_one_that_does_not() -> None:
    same = seen([1.0, 3.0], [1.0, 2.0], [0.1, 0.1], {"x": [-1.0, 4.0], "scale": [1.0, 1.0]})
    assert [plot.title for plot in make_plots(same)] == ["y: error by element", "y: ULP against x"]


def test_an_output_without_any_error_is_not_drawn() -> None:
    assert make_plots(seen([1.0, 3.0], [1.0, 3.0], [0.1, 0.1], {"x": [-1.0, 4.0]})) == []


def test_a_curve_takes_the_place_of_single_elements_and_marks_them() -> None:
    points = ((-8.0, 1e9, "wrong"), (0.0, 0.5, "right"), (8.0, 0.0, "right"))
    curve = ErrorCurve("y", "x", "float32, 3 values, dy = 1.0", [error_in_ulp("x", *point) for point in points])
    drawn = make_plots(seen([1.0], [2.0], [0.1], {"x": [-4.0]}), curve)[1]
    assert [marker.kind for marker in drawn.markers] == ["wrong", "right", "right", "here"]
    assert inside(drawn)


@pytest.mark.parametrize(("flat", "shape", "due"), [(0, (), ()), (5, (2, 3), (1, 2)), (7, (2, 2, 2), (1, 1, 1))])
def test_places_have_the_index_of_the_array(flat: int, shape: tuple[int, ...], due: tuple[int, ...]) -> None:
    assert unravel(flat, shape) == due


def test_names_in_a_plot_are_text() -> None:
    hostile = '</svg><script>alert(1)</script>"'
    values = [error_in_ulp(hostile, 0.0, 1.0, "right"), error_in_ulp(hostile, 1.0, 2.0, "wrong")]
    drawn = plot_curve(ErrorCurve(hostile, hostile, hostile, values), ())
    text = render("plots_and_script.html", result=PlotResult((drawn,)), retry_seconds=0)
    assert "<script" not in text and text.count("</svg>") == 1
