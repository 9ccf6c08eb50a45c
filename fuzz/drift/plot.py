"""Plots drift against depth for every batch size, with the error against the truth and the envelope."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.drift.plan import BatchDrift, DriftPlan
from fuzz.report.plots.plot import Line, Plot, Point, height
from fuzz.report.plots.scales import Linear, Scale, scale_of_errors


def plot_title(plan: DriftPlan) -> str:
    bug = f" with {plan.planted}" if plan.planted else ""
    options = "".join(f", {name} = {value}" for name, value in plan.options.items())
    return f"{plan.target}{bug}, {plan.dtype} on {plan.backend}{options}"


def make_plot(plan: DriftPlan, batches: list[BatchDrift]) -> Plot:
    """One line of drift for every batch size; truth and envelope are those of the largest, whose rows are alike."""
    layers = [row for batch in batches for row in batch.rows]
    y = scale_of_errors([value for row in layers for value in (row.drift, row.truth_error, row.envelope)])
    x, last = Linear(0.5, plan.layers + 0.5), batches[-1].rows
    size = last[0].batch
    lines = [
        Line(
            f"batch {batch.rows[0].batch}",
            _points(x, y, (row.drift for row in batch.rows)),
            f"drift, batch of {batch.rows[0].batch}",
        )
        for batch in batches
    ]
    truth = _points(x, y, (row.truth_error for row in last))
    lines.append(Line("truth", truth, f"error against float64, batch of {size}"))
    lines.append(Line("guide", _points(x, y, (row.envelope for row in last)), "envelope of honest rounding"))
    x_ticks = tuple(tick for tick in x.ticks if "." not in tick[1])
    return Plot("", "", "layer", "mean absolute difference of the last row", x_ticks, y.ticks, lines=tuple(lines))


def _points(x: Scale, y: Scale, values: Iterable[float]) -> tuple[Point, ...]:
    return tuple((x.position(layer), height(y, value)) for layer, value in enumerate(values, 1))
