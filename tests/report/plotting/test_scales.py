"""Every value has its position on the axis, and ticks say where values lie."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.report.plotting.plot_data import Linear, SymLog, scale_of_errors, scale_of_values

ANY = st.lists(st.floats(), min_size=1, max_size=40)


@given(ANY)
def test_a_scale_keeps_the_order_of_values_and_holds_all_of_them(values: list[float]) -> None:
    for scale in (scale_of_values(values), scale_of_errors(values)):
        positive = isinstance(scale, SymLog) and scale.positive
        finite = sorted(abs(value) if positive else value for value in values if math.isfinite(value))
        positions = [scale.position(value) for value in finite]
        assert all(-1e-9 <= position <= 1 + 1e-9 for position in positions)
        assert all(a <= b + 1e-9 for a, b in zip(positions, positions[1:], strict=False))


@given(ANY)
@example([1.4302657161616772e16, 1.401419562315496e16])
@example([1.0, 1.0 + 2**-52])
@example([12345.6781, 12345.6782])
def test_ticks_lie_apart_and_say_what_they_stand_for(values: list[float]) -> None:
    for scale in (scale_of_values(values), scale_of_errors(values)):
        ticks = scale.ticks
        assert ticks and len({text for _, text in ticks}) == len(ticks)
        assert all(abs(scale.position(float(text)) - position) < 0.02 for position, text in ticks)
        assert all(b - a > 0.02 for (a, _), (b, _) in zip(ticks, ticks[1:], strict=False))


def test_a_linear_scale_over_all_of_float64_does_not_overflow() -> None:
    scale = Linear(-1.7e308, 1.7e308)
    assert [scale.position(value) for value in (-1.7e308, 0.0, 1.7e308)] == [0.0, 0.5, 1.0]
