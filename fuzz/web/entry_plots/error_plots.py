"""Plots a case: the error of each element of an output, and errors in ULP along inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from fuzz.oracles.diagnosis import DiagnosisContext
from fuzz.report.plotting.plot_data import (
    Line,
    Linear,
    Marker,
    Plot,
    Ticks,
    format_tick,
    height,
    plot_values,
    scale_of_errors,
    scale_of_ulps,
    scale_of_values,
)
from fuzz.sweep.ulps import ulps

MAX_ELEMENTS = 1024
"""Elements of one output that are plotted."""
LABELLED = 8
"""Elements whose index stands below them."""
MAX_OUTPUTS = 6
LEGEND = (("wrong", "disagrees"), ("right", "agrees"), ("bound", "bound"))
CURVE_LEGEND = (("right", "right sign"), ("wrong", "wrong sign"), ("here", "this case"))


class ElementError(NamedTuple):
    """One element of a flattened output: what came, what is due, how far apart they may be, and the error in ULP."""

    flat: int
    got: float
    want: float
    bound: float
    ulps: float
    kind: str

    @property
    def error(self) -> float:
        """abs(got - want); 0 where both are the same infinity or both are NaN."""
        same = self.got == self.want or math.isnan(self.got) and math.isnan(self.want)
        return 0.0 if same else abs(self.got - self.want)


InputError = tuple[float, ElementError]
"""The value of an input at an element, and that element."""


class ErrorCurve(NamedTuple):
    """Errors of one output in ULP along one argument; `note` says what the others hold."""

    output: str
    argument: str
    note: str
    values: list[Marker]


def make_plots(seen: DiagnosisContext, curve: ErrorCurve | None = None) -> list[Plot]:
    """Of each output the error by element, wrong outputs first; then the error in ULP along inputs.

    An output without any error has no plot.
    """
    elements = {output: list_elements(seen, output) for output in seen.got if seen.got[output].numel()}
    inexact = [output for output, rows in elements.items() if output in seen.wrong or any(row.error for row in rows)]
    outputs = sorted(inexact, key=lambda output: output not in seen.wrong)[:MAX_OUTPUTS]
    plots = [plot_elements(seen, output, elements[output]) for output in outputs]
    wrong = [output for output in outputs if output in seen.wrong] or outputs[:1]
    inputs = {
        (output, name): list(zip(values.reshape(-1)[[row.flat for row in rows]].tolist(), rows, strict=True))
        for output, rows in elements.items()
        for name, values in seen.inputs.items()
        if output in wrong and values.shape == seen.got[output].shape
    }
    if curve:
        plots.append(plot_curve(curve, inputs.pop((curve.output, curve.argument), [])))
    varied = {key: rows for key, rows in inputs.items() if len({x for x, _ in rows if math.isfinite(x)}) > 1}
    return plots + [plot_along_input(seen, *key, rows) for key, rows in varied.items()]


def list_elements(seen: DiagnosisContext, output: str) -> list[ElementError]:
    """The elements of one output; of a large one all kinds of wrong elements and others evenly."""
    got, want, bound = (part[output].reshape(-1) for part in (seen.got, seen.want, seen.bound))
    wrong = seen.wrong[output].reshape(-1) if output in seen.wrong else torch.zeros(len(got), dtype=torch.bool)
    flat = torch.from_numpy(choose_elements(wrong.numpy()))
    columns = flat, got[flat], want[flat], bound[flat], ulps(got[flat], want[flat], seen.kind(output))
    kinds = ["wrong" if each else "right" for each in wrong[flat].tolist()]
    return list(map(ElementError, *(column.tolist() for column in columns), kinds))


def choose_elements(wrong: np.ndarray) -> np.ndarray:
    """Indices of at most MAX_ELEMENTS elements in order: all of a few, else half of them wrong ones if there are."""
    if wrong.size <= MAX_ELEMENTS:
        return np.arange(wrong.size)
    hit = np.flatnonzero(wrong)
    some = hit[np.linspace(0, hit.size - 1, min(hit.size, MAX_ELEMENTS // 2)).astype(np.int64)]
    evenly = np.linspace(0, wrong.size - 1, MAX_ELEMENTS - some.size).astype(np.int64)
    return np.unique(np.concatenate([some, evenly]))


def plot_elements(seen: DiagnosisContext, output: str, rows: Sequence[ElementError]) -> Plot:
    """abs(got - want) of each element with its bound."""
    x, shape = Linear(0, len(rows)), seen.got[output].shape
    y = scale_of_errors([number for row in rows for number in (row.error, row.bound)])
    steps = [(x.position(i + side), height(y, row.bound)) for i, row in enumerate(rows) for side in (0, 1)]
    values = []
    for i, row in enumerate(rows):
        label = f"got {row.got:.9g}, want {row.want:.9g}, {row.bound:.3g} allowed"
        values.append(Marker(i + 0.5, row.error, row.kind, f"{output}{list(unravel(row.flat, shape))}: {label}"))
    note = describe_share(seen, output, rows, f" {'x'.join(map(str, shape)) or 'scalar'}")
    bound = Line("bound", tuple(steps), filled=True)
    labels, ticks = ("element", "|got - want|"), index_ticks(rows, shape)
    return plot_values(f"{output}: error by element", note, labels, x, y, values, LEGEND, [bound], ticks)


def plot_along_input(seen: DiagnosisContext, output: str, name: str, rows: Sequence[InputError]) -> Plot:
    """The error of each element in ULP against an input at the same index."""
    values = [error_in_ulp(name, x, row.ulps, row.kind) for x, row in rows if math.isfinite(x)]
    x, y = scale_of_values(value.x for value in values), scale_of_ulps(row.ulps for _, row in rows)
    note = describe_share(seen, output, [row for _, row in rows])
    return plot_values(f"{output}: ULP against {name}", note, (name, "error, ULP"), x, y, values, LEGEND)


def plot_curve(curve: ErrorCurve, own: Sequence[InputError]) -> Plot:
    """The error along an argument, with the elements of the finding's own case on it."""
    name, x = curve.argument, Linear(curve.values[0].x, curve.values[-1].x)
    # A curve is drawn over an interval of its own: elements outside it would lie on its edge.
    here = [error_in_ulp(name, value, row.ulps, "here") for value, row in own if x.low <= value <= x.high]
    values = [*curve.values, *here]
    y, title = scale_of_ulps(value.y for value in values), f"{curve.output}: ULP against {name}"
    return plot_values(title, curve.note, (name, "error, ULP"), x, y, values, CURVE_LEGEND)


def error_in_ulp(name: str, x: float, error: float, kind: str) -> Marker:
    return Marker(x, error, kind, f"{name} = {x:.9g}: {error:.3g} ULP")


def describe_share(seen: DiagnosisContext, output: str, rows: Sequence[ElementError], shape: str = "") -> str:
    """The dtype of an output, its shape, and how much of it is drawn."""
    drawn, count = len(rows), seen.got[output].numel()
    return f"{seen.kind(output).name}{shape}" + (f", {drawn} of {count} elements drawn" if drawn < count else "")


def index_ticks(rows: Sequence[ElementError], shape: Sequence[int]) -> Ticks:
    """Below each of a few elements its index; below many some indices of the flattened output, evenly."""
    count = len(rows)
    step = 1 if count <= LABELLED else -(-count // LABELLED)
    return tuple(
        ((i + 0.5) / count, format_tick(row.flat) if step > 1 else ",".join(map(str, unravel(row.flat, shape))))
        for i, row in list(enumerate(rows))[::step]
    )


def unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element of the flattened array."""
    return tuple(map(int, np.unravel_index(flat, shape)))
