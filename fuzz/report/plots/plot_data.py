"""Describes one plot: markers and lines over two axes, in shares of each axis from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fuzz.report.plots.scales import Scale, Ticks

Point = tuple[float, float]
Legend = tuple[tuple[str, str], ...]
"""(kind of marker or line, what it stands for) of each."""
NOT_FINITE = 1.06
"""Where on the y axis a value lies that is not finite: above all others."""


@dataclass(frozen=True)
class Marker:
    """One value. `kind` is right, wrong or here (an element of the finding's own case on a curve)."""

    x: float
    y: float
    kind: str
    label: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points, with the area below it filled where `filled`. `kind` is its style, `label` its legend."""

    kind: str
    points: tuple[Point, ...]
    label: str = ""
    filled: bool = False


@dataclass(frozen=True)
class Plot:
    """Ticks are (share of the axis, label)."""

    title: str
    note: str
    x_label: str
    y_label: str
    x_ticks: Ticks
    y_ticks: Ticks
    markers: tuple[Marker, ...] = ()
    lines: tuple[Line, ...] = ()
    legend: Legend = ()

    @property
    def stems(self) -> bool:
        """Whether the markers are few enough to stand on stems."""
        return len(self.markers) <= 48


def shown_legend(legend: Legend, markers: Iterable[Marker]) -> Legend:
    """The items of a legend whose kind is among the markers."""
    kinds = {marker.kind for marker in markers}
    return tuple(item for item in legend if item[0] in kinds)


def height(scale: Scale, value: float) -> float:
    """Where a value lies on the y axis."""
    return scale.position(value) if math.isfinite(value) else NOT_FINITE


def y_ticks(scale: Scale, values: Iterable[float]) -> Ticks:
    """The scale's ticks, and one for what is not finite if there is such a value."""
    if all(math.isfinite(value) for value in values):
        return scale.ticks
    return (*(tick for tick in scale.ticks if tick[0] < 1 - 0.06), (NOT_FINITE, "inf"))
