"""Turns what a plot worker computed into plots: errors by element, and errors in ULP along inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fuzz.report.plots.plot_data import (
    Line,
    Linear,
    Marker,
    Plot,
    Scale,
    Ticks,
    format_tick,
    height,
    scale_of_errors,
    scale_of_ulps,
    scale_of_values,
    shown_legend,
    y_ticks,
)
from fuzz.web.plots.protocol import ErrorCurve, OutputErrors, PlotResult

LABELLED = 8
"""Elements whose index stands below them."""
MAX_OUTPUTS = 6
LEGEND = (("wrong", "disagrees"), ("right", "agrees"))
CURVE_LEGEND = (("right", "right sign"), ("wrong", "wrong sign"), ("here", "this case"))


def make_plots(result: PlotResult) -> list[Plot]:
    """Of each output the error by element, wrong outputs first; then the error in ULP along inputs.

    An output without any error has no plot.
    """
    inexact = [output for output in result.outputs if any(output.wrong) or any(output.errors)]
    outputs = sorted(inexact, key=lambda output: not any(output.wrong))[:MAX_OUTPUTS]
    plots = [plot_elements(output) for output in outputs]
    wrong = [output for output in outputs if any(output.wrong)] or outputs[:1]
    plots += [plot_curve(curve, wrong) for curve in result.curves]
    with_curve = {(curve.output, curve.argument) for curve in result.curves}
    for output in wrong:
        for name, values in output.inputs.items():
            varied = len({value for value in values if math.isfinite(value)}) > 1
            if varied and (output.output, name) not in with_curve:
                plots.append(plot_along_input(output, name))
    return plots


def plot_elements(output: OutputErrors) -> Plot:
    """abs(got - want) of each element with its bound."""
    scale = scale_of_errors([*output.errors, *output.bound])
    count = len(output.indices)
    steps = [((i + side) / count, height(scale, bound)) for i, bound in enumerate(output.bound) for side in (0, 1)]
    markers = tuple(_element_markers(output, scale))
    return Plot(
        f"{output.output}: error by element",
        f"{output.dtype} {'x'.join(map(str, output.shape)) or 'scalar'}" + _share(output),
        "element", "|got - want|", _index_ticks(output), y_ticks(scale, output.errors),
        markers, (Line("bound", tuple(steps), filled=True),), (*shown_legend(LEGEND, markers), ("bound", "bound")),
    )  # fmt: skip


def plot_along_input(output: OutputErrors, name: str) -> Plot:
    """The error of each element in ULP against an input at the same index."""
    x, y = scale_of_values(output.inputs[name]), scale_of_ulps(output.ulps)
    rows = zip(output.inputs[name], output.ulps, output.wrong, strict=True)
    markers = [_marker(x, y, value, error, wrong, name) for value, error, wrong in rows if math.isfinite(value)]
    return Plot(
        f"{output.output}: ULP against {name}", f"{output.dtype}{_share(output)}", name, "error, ULP",
        _inside(x.ticks), y_ticks(y, output.ulps), tuple(markers), legend=shown_legend(LEGEND, markers),
    )  # fmt: skip


def plot_curve(curve: ErrorCurve, outputs: Sequence[OutputErrors]) -> Plot:
    """The error along an argument, with the elements of the finding's own case on it."""
    own = [
        (value, error)
        for output in outputs
        if output.output == curve.output
        for value, error in zip(output.inputs.get(curve.argument, ()), output.ulps, strict=False)
        # A curve is drawn over an interval of its own: elements outside it would lie on its edge.
        if curve.x[0] <= value <= curve.x[-1]
    ]
    x, y = Linear(curve.x[0], curve.x[-1]), scale_of_ulps([*curve.ulps, *(error for _, error in own)])
    rows = zip(curve.x, curve.ulps, curve.wrong_sign, strict=True)
    markers = [_marker(x, y, value, error, wrong, curve.argument) for value, error, wrong in rows]
    markers += [_marker(x, y, value, error, None, curve.argument) for value, error in own]
    held = ", ".join(f"{name} = {text}" for name, text in curve.fixed.items())
    return Plot(
        f"{curve.output}: ULP against {curve.argument}",
        f"{curve.dtype}, {len(curve.x)} values" + (held and f", {held}"),
        curve.argument, "error, ULP", _inside(x.ticks), y_ticks(y, curve.ulps), tuple(markers),
        legend=shown_legend(CURVE_LEGEND, markers),
    )  # fmt: skip


def _element_markers(output: OutputErrors, scale: Scale) -> Iterator[Marker]:
    rows = zip(output.indices, output.errors, output.got, output.want, output.bound, output.wrong, strict=True)
    for position, (flat, error, got, want, bound, wrong) in enumerate(rows):
        element = f"{output.output}{list(unravel(flat, output.shape))}"
        label = f"{element}: got {got:.9g}, want {want:.9g}, {bound:.3g} allowed"
        x = (position + 0.5) / len(output.indices)
        yield Marker(x, height(scale, error), "wrong" if wrong else "right", label)


def _marker(x: Scale, y: Scale, value: float, error: float, wrong: bool | None, name: str) -> Marker:
    """One value's error; `wrong` is None for an element of the finding's own case."""
    kind = "here" if wrong is None else "wrong" if wrong else "right"
    return Marker(x.position(value), height(y, error), kind, f"{name} = {value:.9g}: {error:.3g} ULP")


def _inside(ticks: Ticks) -> Ticks:
    return tuple(tick for tick in ticks if 0 <= tick[0] <= 1)


def _index_ticks(output: OutputErrors) -> Ticks:
    """Below each of a few elements its index; below many some indices of the flattened output, evenly."""
    count = len(output.indices)
    step = 1 if count <= LABELLED else -(-count // LABELLED)
    positions = range(0, count, step)
    if step > 1:
        return tuple(((i + 0.5) / count, format_tick(output.indices[i])) for i in positions)
    return tuple(((i + 0.5) / count, ",".join(map(str, unravel(output.indices[i], output.shape)))) for i in positions)


def unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element of the flattened array."""
    return tuple(map(int, np.unravel_index(flat, shape)))


def _share(output: OutputErrors) -> str:
    drawn = len(output.indices)
    return f", {drawn} of {output.total} elements drawn" if drawn < output.total else ""
