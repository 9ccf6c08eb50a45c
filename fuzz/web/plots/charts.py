"""Plots: portraits as geometry that the template ``plot.svg`` draws: pixels, ticks and words, no colours."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fuzz.web.plots.data import ErrorCurve, OutputErrors, PlotData
from fuzz.web.plots.scales import Linear, Scale, Signed, Ticks, along, label, sizes

WIDTH, HEIGHT = 480.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 20.0, 34.0
NAMED = 8
"""Elements whose index stands below them."""
PANELS = 6
"""Outputs that are drawn."""


@dataclass(frozen=True)
class Mark:
    """One element. `kind` is right, wrong or here (an element of the finding's own case on a curve)."""

    x: float
    y: float
    kind: str
    told: str


@dataclass(frozen=True)
class Plot:
    """One picture in pixels. `bound` and `allowed` are paths of the bound and of what lies below it."""

    title: str
    note: str
    x_label: str
    y_label: str
    x_ticks: Ticks
    y_ticks: Ticks
    marks: tuple[Mark, ...]
    bound: str = ""
    allowed: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    base: float = HEIGHT - BOTTOM

    @property
    def stems(self) -> bool:
        """Whether the marks are few enough to stand on stems."""
        return len(self.marks) <= 48


def plots(portrait: PlotData) -> list[Plot]:
    """Of each output the error by element, wrong outputs first; then the error in ULP along inputs.

    An output without any error is not drawn.
    """
    off = [panel for panel in portrait.panels if any(panel.wrong) or any(panel.errors)]
    panels = sorted(off, key=lambda panel: not any(panel.wrong))[:PANELS]
    drawn = [by_element(panel) for panel in panels]
    wrong = [panel for panel in panels if any(panel.wrong)] or panels[:1]
    drawn += [on_curve(curve, wrong) for curve in portrait.curves]
    taken = {(curve.output, curve.argument) for curve in portrait.curves}
    for panel in wrong:
        for name, values in panel.inputs.items():
            varied = len({value for value in values if math.isfinite(value)}) > 1
            if varied and (panel.output, name) not in taken:
                drawn.append(along_input(panel, name))
    return drawn


def by_element(panel: OutputErrors) -> Plot:
    """abs(got - want) of each element with its bound."""
    scale = sizes([*panel.errors, *panel.bound])
    count = len(panel.places)
    width = (WIDTH - LEFT - RIGHT) / count
    edges = [LEFT + width * place for place in range(count)]
    tops = [_down(scale, bound) for bound in panel.bound]
    bars = list(zip(edges, tops, strict=True))
    return Plot(
        f"{panel.output}: error by element",
        f"{panel.dtype} {'x'.join(map(str, panel.shape)) or 'scalar'}" + _share(panel),
        "element", "|got - want|", _indices(panel, width), _y_ticks(scale, panel.errors),
        tuple(_elements(panel, scale, width)),
        bound=" ".join(f"M{x:.1f} {y:.1f}h{width:.1f}" for x, y in bars),
        allowed=" ".join(f"M{x:.1f} {HEIGHT - BOTTOM:.1f}V{y:.1f}h{width:.1f}V{HEIGHT - BOTTOM:.1f}z" for x, y in bars),
        legend=_legend(any(panel.wrong), not all(panel.wrong), ("bound", "bound")),
    )  # fmt: skip


def along_input(panel: OutputErrors, name: str) -> Plot:
    """The error of each element in ULP against an input at the same place."""
    x, scale = along(panel.inputs[name]), ulp_scale(panel.ulps)
    rows = zip(panel.inputs[name], panel.ulps, panel.wrong, strict=True)
    marks = [
        _mark(x, scale, value, error, "wrong" if wrong else "right", name)
        for value, error, wrong in rows
        if math.isfinite(value)
    ]
    legend = _legend(any(panel.wrong), not all(panel.wrong))
    return Plot(
        f"{panel.output}: ULP against {name}", f"{panel.dtype}{_share(panel)}", name, "error, ULP",
        _x_ticks(x), _y_ticks(scale, panel.ulps), tuple(marks), legend=legend,
    )  # fmt: skip


def on_curve(curve: ErrorCurve, panels: Sequence[OutputErrors]) -> Plot:
    """The error along an argument, with the elements of the finding's own case on it."""
    own = [
        (value, error)
        for panel in panels
        if panel.output == curve.output
        for value, error in zip(panel.inputs.get(curve.argument, ()), panel.ulps, strict=False)
        if math.isfinite(value)
    ]
    # A curve is drawn over an interval of its own: elements outside it would lie on its edge.
    own = [pair for pair in own if curve.x[0] <= pair[0] <= curve.x[-1]]
    x, scale = Linear(curve.x[0], curve.x[-1]), ulp_scale([*curve.ulps, *(error for _, error in own)])
    rows = zip(curve.x, curve.ulps, curve.sign, strict=True)
    marks = [_mark(x, scale, v, error, "wrong" if sign else "right", curve.argument) for v, error, sign in rows]
    marks += [_mark(x, scale, value, error, "here", curve.argument) for value, error in own]
    held = ", ".join(f"{name} = {text}" for name, text in curve.fixed.items())
    words = [("right", "right sign"), ("wrong", "wrong sign"), ("here", "this case")]
    there = {mark.kind for mark in marks}
    note = f"{curve.dtype}, {len(curve.x)} values" + (held and f", {held}")
    return Plot(
        f"{curve.output}: ULP against {curve.argument}", note,
        curve.argument, "error, ULP", _x_ticks(x), _y_ticks(scale, curve.ulps), tuple(marks),
        legend=tuple(word for word in words if word[0] in there),
    )  # fmt: skip


def ulp_scale(errors: Iterable[float]) -> Signed:
    """Linear up to one unit, logarithmic above."""
    finite = [error for error in errors if math.isfinite(error)]
    most = min(2 * max(finite, default=0.0), sys.float_info.max)
    return Signed(1.0, max(4.0, most), positive=True)


def _elements(panel: OutputErrors, scale: Scale, width: float) -> Iterator[Mark]:
    rows = zip(panel.places, panel.errors, panel.got, panel.want, panel.bound, panel.wrong, strict=True)
    for position, (place, error, got, want, bound, wrong) in enumerate(rows):
        told = f"{panel.output}{list(index(place, panel.shape))}: got {got:.9g}, want {want:.9g}, {bound:.3g} allowed"
        x = LEFT + width * (position + 0.5)
        yield Mark(round(x, 1), _down(scale, error), "wrong" if wrong else "right", told)


def _mark(x: Scale, y: Scale, value: float, error: float, kind: str, name: str) -> Mark:
    return Mark(_across(x, value), _down(y, error), kind, f"{name} = {value:.9g}: {error:.3g} ULP")


def _across(scale: Scale, value: float) -> float:
    return round(LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT), 1)


def _down(scale: Scale, value: float) -> float:
    """What is not finite lies at the top."""
    place = scale.place(value) if math.isfinite(value) else 1.06
    return round(HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP), 1)


def _x_ticks(scale: Scale) -> Ticks:
    return tuple((LEFT + place * (WIDTH - LEFT - RIGHT), text) for place, text in scale.ticks if 0 <= place <= 1)


def _y_ticks(scale: Scale, values: Iterable[float]) -> Ticks:
    ticks = [(HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP), text) for place, text in scale.ticks]
    if any(not math.isfinite(value) for value in values):
        ticks = [*(tick for tick in ticks if tick[0] > TOP + 10), (_down(scale, math.inf), "inf")]
    return tuple(ticks)


def _indices(panel: OutputErrors, width: float) -> Ticks:
    """Below each of a few elements its index; below many evenly some places of the flattened output."""
    count = len(panel.places)
    step = 1 if count <= NAMED else -(-count // NAMED)
    return tuple(
        (LEFT + width * (position + 0.5), _index_text(panel, position) if step == 1 else label(panel.places[position]))
        for position in range(0, count, step)
    )


def _index_text(panel: OutputErrors, position: int) -> str:
    return ",".join(map(str, index(panel.places[position], panel.shape)))


def index(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of a place of the flattened array."""
    found = []
    for size in reversed(shape):
        found.append(place % size)
        place //= size
    return tuple(reversed(found))


def _share(panel: OutputErrors) -> str:
    return f", {len(panel.places)} of {panel.total} elements drawn" if len(panel.places) < panel.total else ""


def _legend(wrong: bool, right: bool, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (*([("wrong", "disagrees")] if wrong else []), *([("right", "agrees")] if right else []), *more)
