"""Reports drift: a table and a plot for people, and the JSON value that scripts rely on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from fuzz.drift.plan import BatchDrift, DriftPlan
from fuzz.drift.runner import breaks_promise
from fuzz.report.json import finding_json
from fuzz.report.plotting.plot_data import Line, Linear, Plot, Point, Scale, height, scale_of_errors
from fuzz.run.result import Result

TABLE_LAYERS = (1, 2, 5, 10, 15)
"""Layers that the table shows, beside the last one."""


def drift_json(plan: DriftPlan, batches: list[BatchDrift], result: Result | None) -> Mapping[str, Any]:
    """The value that ``fuzz drift --json`` prints; docs/command-line.md describes every field."""
    layers = [layer for batch in batches for layer in batch.layers]
    return {
        "target": plan.target,
        "planted": plan.planted,
        "backend": plan.backend,
        "dtype": plan.dtype,
        "layers": plan.layers,
        "dims": dict(plan.dims),
        "options": dict(plan.options),
        "promise": "bitwise" if plan.bitwise else "envelope",
        # JSON has no infinity and no NaN: an envelope without a bound is null, as is a mean over such elements.
        "rows": [
            {name: value if math.isfinite(value) else None for name, value in asdict(layer).items()} for layer in layers
        ],
        "broken": any(breaks_promise(plan, layer) for layer in layers),
        "findings": [finding_json(bug) for bug in result.bugs] if result else [],
    }


def format_heading(plan: DriftPlan) -> str:
    bug = f", planted {plan.planted}" if plan.planted else ""
    sizes = " ".join(f"{name}={size}" for name, size in plan.dims.items())
    options = "".join(f", {name} = {value}" for name, value in plan.options.items())
    circumstances = f"{plan.layers} layers of {plan.dtype}, {sizes}{options}, on {plan.backend}"
    return f"{plan.target}{bug}: {circumstances}; the last row of a batch against the same row alone"


def format_table(plan: DriftPlan, batches: list[BatchDrift]) -> str:
    """The whole table: of each batch size some layers."""
    return "\n".join([format_heading(plan), "", *format_rows(plan, batches), "", format_verdict(plan, batches)])


def format_rows(plan: DriftPlan, batches: list[BatchDrift]) -> Iterator[str]:
    yield f"{'batch':>6}{'layer':>7}{'drift':>12}{'from truth':>12}{'envelope':>12}   elements with other bits"
    for layer in (layer for batch in batches for layer in batch.layers):
        if layer.layer in (*TABLE_LAYERS, plan.layers):
            beyond = f", {layer.beyond} beyond the envelope" if layer.beyond else ""
            numbers = f"{layer.drift:>12.3g}{layer.truth_error:>12.3g}{layer.envelope:>12.3g}"
            yield f"{layer.batch:>6}{layer.layer:>7}{numbers}   {layer.differ}{beyond}"


def format_verdict(plan: DriftPlan, batches: list[BatchDrift]) -> str:
    """Whether the promise is kept."""
    promise = "the same bits" if plan.bitwise else "drift inside the envelope"
    wrong = [layer for batch in batches for layer in batch.layers if breaks_promise(plan, layer)]
    if not wrong:
        return f"promised: {promise}; kept at every layer"
    return f"promised: {promise}; broken first at layer {wrong[0].layer} of a batch of {wrong[0].batch}"


def make_plot(plan: DriftPlan, batches: list[BatchDrift]) -> Plot:
    """One line of drift for every batch size, from the smallest to the largest, which gives the other two lines."""
    every = [layer for batch in batches for layer in batch.layers]
    y = scale_of_errors([value for layer in every for value in (layer.drift, layer.truth_error, layer.envelope)])
    x, last = Linear(0.5, plan.layers + 0.5), batches[-1].layers
    size = last[0].batch
    lines = []
    for batch in batches:
        name = f"batch of {batch.layers[0].batch}"
        lines.append(Line(name, _points(x, y, (layer.drift for layer in batch.layers)), f"drift, {name}"))
    truth = _points(x, y, (layer.truth_error for layer in last))
    lines.append(Line("truth", truth, f"error against float64, batch of {size}"))
    lines.append(Line("guide", _points(x, y, (layer.envelope for layer in last)), "envelope of honest rounding"))
    # Whole layers only.
    x_ticks = tuple(tick for tick in x.ticks if "." not in tick[1])
    return Plot("", "", "layer", "mean absolute difference of the last row", x_ticks, y.ticks, lines=tuple(lines))


def _points(x: Scale, y: Scale, values: Iterable[float]) -> tuple[Point, ...]:
    return tuple((x.position(layer), height(y, value)) for layer, value in enumerate(values, 1))
