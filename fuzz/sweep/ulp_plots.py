"""Plots the error in units in the last place against the swept value."""

from __future__ import annotations

import numpy as np

from fuzz.model.dtypes import from_bits
from fuzz.report.plots.plot_data import Line, Marker, Plot, height
from fuzz.report.plots.scales import Linear, Scale, Ticks, format_tick, scale_of_ulps
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.ranks import bits_at
from fuzz.sweep.sweep_counts import BINS, BOUNDS, NEAR, SweepCounts

KINDS = (("right", "right sign"), ("wrong", "wrong sign"))


def make_plots(plan: SweepPlan, counts: SweepCounts) -> list[Plot]:
    """All values by their rank in the order of values, and those from -NEAR to NEAR by value."""
    name, x = plan.swept[0], Linear(-NEAR, NEAR)
    edges = [(x.position(value), format_tick(value)) for value in (-NEAR, *BOUNDS, NEAR)]
    return [
        _plot(counts.bins[0], f"{name}, all values evenly in their order", _rank_ticks(plan), ()),
        _plot(counts.bins[1], f"{name}; dotted: the ends of the table's regions", tuple(edges), tuple(edges[1:-1])),
    ]


def _plot(bins: np.ndarray, x_label: str, x_ticks: Ticks, guides: Ticks) -> Plot:
    """The largest error of each bin, of values with the right and with the wrong sign."""
    y = scale_of_ulps(bins[~np.isnan(bins)].tolist())
    markers = [marker for (kind, _), values in zip(KINDS, bins, strict=True) for marker in _markers(y, kind, values)]
    kinds = {marker.kind for marker in markers}
    lines = [Line("guide", ((0.0, y.position(1.0)), (1.0, y.position(1.0))))]
    lines += [Line("guide", ((x, 0.0), (x, 1.0))) for x, _ in guides]
    legend = tuple(item for item in KINDS if item[0] in kinds)
    return Plot("", "", x_label, "largest error, ULP", x_ticks, y.ticks, tuple(markers), tuple(lines), legend)


def _markers(y: Scale, kind: str, values: np.ndarray) -> list[Marker]:
    indices = np.flatnonzero(~np.isnan(values))
    return [Marker((index + 0.5) / BINS, height(y, float(values[index])), kind) for index in indices.tolist()]


def _rank_ticks(plan: SweepPlan) -> Ticks:
    """Ticks at every sixteenth of the order of values, but for what is not finite."""
    shares = np.arange(16) / 16
    values = from_bits(bits_at((shares * (1 << plan.kind.bits)).astype(np.uint64), plan.kind), plan.kind)
    pairs = zip(shares.tolist(), values.astype(np.float64).tolist(), strict=True)
    return tuple((share, format_tick(float(f"{value:.0e}"))) for share, value in pairs if np.isfinite(value))
