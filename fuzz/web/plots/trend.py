"""Trend: a campaign over time as plots: cases, and findings, summed over its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuzz.campaign.store import Statistic
from fuzz.web.formatting import stamp
from fuzz.web.plots.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plot
from fuzz.web.plots.scales import Linear

Points = list[tuple[float, float]]
HOUR = 3600.0


def trends(statistics: Sequence[Statistic]) -> list[Plot]:
    """Cases and findings against time; none before there are two moments."""
    drawn = [(summed(statistics, "cases"), "cases"), (summed(statistics, "findings"), "findings")]
    return [line(points, name) for points, name in drawn if len({x for x, _ in points}) > 1]


def summed(statistics: Iterable[Statistic], name: str) -> Points:
    """(wall time, sum over all lanes of what each told last) after each statistic; a clock set back stands still."""
    latest: dict[tuple[str, ...], float] = {}
    points: Points = []
    for one in statistics:
        latest[one.target, one.planted, one.backend, one.engine, str(one.seed)] = float(getattr(one, name))
        points.append((max(one.wall, points[-1][0]) if points else one.wall, sum(latest.values())))
    return points


def line(points: Points, name: str) -> Plot:
    first = points[0][0]
    hours = points[-1][0] - first > 2 * HOUR
    unit = HOUR if hours else 60.0
    across, down = (
        Linear(0.0, (points[-1][0] - first) / unit),
        Linear(0.0, max(value for _, value in points) * 1.05 or 1.0),
    )
    base = HEIGHT - BOTTOM
    places = [
        (LEFT + across.place((wall - first) / unit) * (WIDTH - LEFT - RIGHT), base - down.place(value) * (base - TOP))
        for wall, value in points
    ]
    # What is counted stays until the next count.
    path = f"M{LEFT} {places[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in thinned(places))
    return Plot(
        name, f"since {stamp(first)} UTC", "hours" if hours else "minutes", name,
        tuple((LEFT + place * (WIDTH - LEFT - RIGHT), text) for place, text in across.ticks),
        tuple((base - place * (base - TOP), text) for place, text in down.ticks if "." not in text),
        (), bound=path, allowed=f"{path}V{base}H{LEFT}z",
    )  # fmt: skip


def thinned(places: Points) -> Points:
    """At most about one point a pixel, the last one always."""
    step = max(1, len(places) // int(WIDTH))
    return [*places[:-1:step], places[-1]]
