"""Plot: the error in units in the last place against the swept value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fuzz.errors import UsageError
from fuzz.model.dtypes import from_bits
from fuzz.sweep.counts import BINS, BOUNDS, NEAR, SweepCounts
from fuzz.sweep.plan import SweepPlan, in_order
from fuzz.sweep.report import fixed_values

FORMATS = (".png", ".svg", ".pdf")
RIGHT, WRONG, GUIDE = "#20639b", "#d1495b", "#777777"
LOG_FROM = 1.0
"""Errors up to this are drawn on a linear scale, larger ones on a logarithmic one."""


def check(path: Path) -> None:
    """UsageError where a plot cannot be written there."""
    if path.suffix not in FORMATS:
        raise UsageError(f"--plot {path}: the name ends in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")
    figures()


def figures() -> Any:
    """matplotlib's figures, without a screen. UsageError where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'triton-differential-fuzz[plots]'") from None
    matplotlib.use("agg")
    matplotlib.rcParams.update(
        {"font.size": 9, "axes.grid": False, "axes.spines.top": False, "axes.spines.right": False}
    )
    from matplotlib import pyplot

    return pyplot


def save(path: Path, plan: SweepPlan, tally: SweepCounts) -> None:
    """Draws all values by their place in the order of values, and those from -NEAR to NEAR by value."""
    pyplot = figures()
    figure, (everywhere, near) = pyplot.subplots(2, 1, figsize=(9, 6.4), layout="constrained")
    name = plan.swept[0]
    rest = ", ".join(f"{key} = {text}" for key, text in fixed_values(plan).items())
    bug = f" with {plan.planted}" if plan.planted else ""
    figure.suptitle(f"{plan.target}{bug}, {plan.dtype} on {plan.backend}" + (f", {rest}" if rest else ""))
    _view(everywhere, (np.arange(BINS) + 0.5) / BINS, tally.bins[0])
    ticks, labels = _places(plan)
    everywhere.set_xticks(ticks, labels)
    everywhere.set_xlim(0, 1)
    everywhere.set_xlabel(f"{name}, all values evenly in their order")
    _view(near, ((np.arange(BINS) + 0.5) / BINS * 2 - 1) * NEAR, tally.bins[1])
    for bound in BOUNDS:
        near.axvline(bound, color=GUIDE, linewidth=0.5, linestyle=":")
    near.set_xticks([-NEAR, *BOUNDS, NEAR], [f"{tick:g}" for tick in (-NEAR, *BOUNDS, NEAR)])
    near.set_xlim(-NEAR, NEAR)
    near.set_xlabel(f"{name}; dotted: the ends of the table's regions")
    figure.savefig(path, dpi=140)
    pyplot.close(figure)


def _view(axes: Any, x: Any, bins: Any) -> None:
    """Largest error of each bin; logarithmic above LOG_FROM."""
    for values, color, label, size in ((bins[0], RIGHT, "right sign", 5), (bins[1], WRONG, "wrong sign", 12)):
        there = ~np.isnan(values)
        if there.any():
            axes.scatter(x[there], values[there], s=size, color=color, label=label, linewidths=0, zorder=3)
    top = max(2.0, float(np.nanmax(np.append(bins, 0.0))))
    axes.set_yscale("symlog", linthresh=LOG_FROM)
    axes.set_ylim(-0.15, top * 3 if top > 10 else top * 1.3)
    if top <= 10:
        axes.set_yscale("linear")
    axes.axhline(1, color=GUIDE, linewidth=0.8, zorder=1)
    axes.set_ylabel("largest error, ULP")
    axes.legend(loc="upper right", frameon=False)


def _places(plan: SweepPlan) -> tuple[list[float], list[str]]:
    """Ticks at every sixteenth of the order of values, but for what is not finite."""
    kind = plan.kind
    places = np.arange(0, 1 << kind.bits, (1 << kind.bits) >> 4, dtype=np.uint64)
    values = from_bits(in_order(places, kind), kind)
    told = [(float(p) / (1 << kind.bits), float(v)) for p, v in zip(places, values, strict=True) if np.isfinite(v)]
    return [place for place, _ in told], [_label(value) for _, value in told]


def _label(value: float) -> str:
    return (
        f"{value:g}"
        if value == 0 or 0.1 < abs(value) < 1000
        else f"{value:.0e}".replace("e+", "e").replace("e-0", "e-")
    )
