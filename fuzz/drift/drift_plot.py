"""Plots drift against depth for every batch size, with the error against the truth and the envelope."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.drift.plan import BatchDrift, DriftPlan
from fuzz.report.plots.plot_data import Line, Plot, Point, height
from fuzz.report.plots.scales import Linear, Scale, scale_of_errors


def make_plot(plan: DriftPlan, batches: list[BatchDrift]) -> Plot:
    """One line of drift for every batch size; truth and envelope are those of the largest, whose rows are alike."""
    every = [layer for batch in batches for layer in batch.layers]
    y = scale_of_errors([value for layer in every for value in (layer.drift, layer.truth_error, layer.envelope)])
    x, last = Linear(0.5, plan.layers + 0.5), batches[-1].layers
    size = last[0].batch
    lines = [
        Line(
            f"batch {batch.layers[0].batch}",
            _points(x, y, (layer.drift for layer in batch.layers)),
            f"drift, batch of {batch.layers[0].batch}",
        )
        for batch in batches
    ]
    truth = _points(x, y, (layer.truth_error for layer in last))
    lines.append(Line("truth", truth, f"error against float64, batch of {size}"))
    lines.append(Line("guide", _points(x, y, (layer.envelope for layer in last)), "envelope of honest rounding"))
    x_ticks = tuple(tick for tick in x.ticks if "." not in tick[1])
    return Plot("", "", "layer", "mean absolute difference of the last row", x_ticks, y.ticks, lines=tuple(lines))


def _points(x: Scale, y: Scale, values: Iterable[float]) -> tuple[Point, ...]:
    return tuple((x.position(layer), height(y, value)) for layer, value in enumerate(values, 1))
