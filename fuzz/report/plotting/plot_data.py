"""Describes one plot: markers and lines over two axes, in shares of each axis from 0 to 1, and the axes' ticks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Ticks = tuple[tuple[float, str], ...]
MAX_TICKS = 7
"""Ticks of an axis."""
SMALLEST_DRAWN = 1e-300
"""Values that are not larger are drawn as 0."""
LABEL_GAP = 0.05
"""Share of an axis that two labels need between them."""


@dataclass(frozen=True)
class Linear:
    """From `low` to `high`. `ticks` are (position, label) in order."""

    low: float
    high: float

    def position(self, value: float) -> float:
        """From 0 to 1; NaN has no position."""
        # Halves, since the difference of the ends may be beyond float64.
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    @property
    def ticks(self) -> Ticks:
        step = nice_step((self.high / 2 - self.low / 2) * 2 / (MAX_TICKS - 1))
        first = math.ceil(self.low / step)
        values = [(first + i) * step for i in range(MAX_TICKS + 3) if (first + i) * step <= self.high * (1 + 1e-12)]
        # A step may be less than the distance of two numbers.
        return tuple((self.position(value), format_tick(value, step)) for value in dict.fromkeys(values))


@dataclass(frozen=True)
class SymLog:
    """Logarithmic on both sides of a linear part from -`unit` to `unit`, out to `reach`; from 0 on where `positive`."""

    unit: float
    reach: float
    positive: bool = False

    def position(self, value: float) -> float:
        side = min(self._side(abs(value)) / self._side(self.reach), 1.0)
        return side if self.positive else (1 + math.copysign(side, value)) / 2

    def _side(self, value: float) -> float:
        return value / self.unit if value <= self.unit else 1 + math.log10(value) - math.log10(self.unit)

    @property
    def ticks(self) -> Ticks:
        first, last = math.ceil(math.log10(self.unit) - 1e-9), math.floor(math.log10(self.reach) + 1e-9)
        each = MAX_TICKS if self.positive else MAX_TICKS // 2
        powers = [10.0**power for power in range(first, last + 1, max(1, -(-(last + 1 - first) // each)))]
        values = [0.0, *powers] if self.positive else [*(-power for power in reversed(powers)), 0.0, *powers]
        positioned = [(self.position(value), format_tick(value)) for value in values]
        # The first power may lie so near to 0 that one label would cover the other.
        return tuple(tick for tick in positioned if tick[1] == "0" or abs(tick[0] - self.position(0.0)) > LABEL_GAP)


Scale = Linear | SymLog


def nice_step(step: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not less than a step."""
    power = max(10.0 ** math.floor(math.log10(step)), SMALLEST_DRAWN)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= step * (1 - 1e-12))


def format_tick(value: float, step: float = 0.0) -> str:
    """A number with few digits, but with as many as tell it from one that lies a step away."""
    needed = math.ceil(math.log10(abs(value) / step)) + 2 if value and step else 0
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.{max(6, needed)}g}"
    return f"{value:.{max(3, needed)}g}".replace("e+", "e").replace("e-0", "e-").replace("e0", "e")


def scale_of_values(values: Iterable[float]) -> Scale:
    """A scale for an argument's values: linear, unless they are so far apart that most would lie on one spot."""
    finite = sorted(value for value in values if math.isfinite(value))
    # What is smaller than any float32 is 0 here: an axis of float64's subnormals has no steps.
    sizes = sorted(abs(value) for value in finite if abs(value) > SMALLEST_DRAWN)
    if not sizes:
        return Linear(-1.0, 1.0)
    middle = sizes[len(sizes) // 2]
    if sizes[-1] > 1e4 * middle or sizes[-1] > 1e300:
        return SymLog(max(10.0 ** math.floor(math.log10(sizes[0])), SMALLEST_DRAWN), sizes[-1])
    low, high = finite[0], finite[-1]
    room = (high - low) * 0.02 or abs(high) * 0.5
    return Linear(low - room, high + room)


def scale_of_errors(values: Iterable[float]) -> SymLog:
    """A scale for errors or bounds: 0, then logarithmic from the smallest to the largest finite one."""
    positive = sorted(value for value in values if math.isfinite(value) and value > SMALLEST_DRAWN)
    if not positive:
        return SymLog(1.0, 10.0, positive=True)
    unit = max(10.0 ** math.floor(math.log10(positive[0])), SMALLEST_DRAWN)
    return SymLog(unit, min(max(positive[-1] * 2, unit * 10), sys.float_info.max), positive=True)


def scale_of_ulps(errors: Iterable[float]) -> SymLog:
    """Linear up to one unit in the last place, logarithmic above."""
    largest = max((error for error in errors if math.isfinite(error)), default=0.0)
    return SymLog(1.0, max(4.0, min(2 * largest, sys.float_info.max)), positive=True)


Point = tuple[float, float]
Legend = tuple[tuple[str, str], ...]
"""(kind of marker or line, what it stands for) of each."""
NOT_FINITE = 1.06
"""Where on the y axis a value lies that is not finite: above all others."""


class Marker(NamedTuple):
    """One value, by shares of the axes in a plot and by its numbers before that.

    `kind` is right, wrong or here (an element of the finding's own case on a curve).
    """

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


def plot_values(
    title: str,
    note: str,
    labels: tuple[str, str],
    x: Scale,
    y: Scale,
    values: Sequence[Marker],
    legend: Legend,
    lines: Iterable[Line] = (),
    x_ticks: Ticks | None = None,
) -> Plot:
    """A plot of values, with those items of a legend that are in it; without `x_ticks` with those of the scale."""
    lines, y_ticks = tuple(lines), y.ticks
    kinds = {value.kind for value in values} | {line.kind for line in lines}
    if not all(math.isfinite(value.y) for value in values):
        y_ticks = (*(tick for tick in y_ticks if tick[0] < 1 - 0.06), (NOT_FINITE, "inf"))
    return Plot(
        title, note, *labels, tuple(tick for tick in x_ticks or x.ticks if 0 <= tick[0] <= 1), y_ticks,
        tuple(value._replace(x=x.position(value.x), y=height(y, value.y)) for value in values), lines,
        tuple(item for item in legend if item[0] in kinds),
    )  # fmt: skip


def height(scale: Scale, value: float) -> float:
    """Where a value lies on the y axis."""
    return scale.position(value) if math.isfinite(value) else NOT_FINITE
