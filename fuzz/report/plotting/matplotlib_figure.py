"""Writes plots into image files by matplotlib, which is an optional package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError
from fuzz.report.plotting.plot_data import NOT_FINITE, Plot
from fuzz.report.result_files import check_result_path

FORMATS = (".png", ".svg", ".pdf")
COLORS = {"right": "#20639b", "wrong": "#d1495b", "guide": "#777777", "truth": "black"}
PALETTE = ("#20639b", "#d1495b", "#3caea3", "#edae49", "#6a4c93", "#8d6e63")
"""Colours of lines whose kind has none of its own, in their order."""
STYLES = {"guide": ":", "truth": "--"}


def check_plot_path(path: Path | None) -> None:
    """UsageError where a plot is wanted and cannot be written there."""
    if path is None:
        return
    if path.suffix not in FORMATS:
        raise UsageError(f"--plot {path}: the name ends in {', '.join(FORMATS)}")
    check_result_path(path, "--plot")
    load_pyplot()


def load_pyplot() -> Any:
    """matplotlib's figures, without a screen. UsageError where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'triton-differential-fuzz[plots]'") from None
    matplotlib.use("agg")
    matplotlib.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    return pyplot


def plot_title(target: str, planted: str | None, dtype: str, backend: str, settings: Mapping[str, object]) -> str:
    """What was measured, and with which settings."""
    bug = f" with {planted}" if planted else ""
    return f"{target}{bug}, {dtype} on {backend}" + "".join(f", {name} = {text}" for name, text in settings.items())


def save_figure(path: Path, title: str, plots: Sequence[Plot]) -> None:
    """Draws plots one below the other."""
    pyplot = load_pyplot()
    size = (9, 1.6 + 3.2 * len(plots))
    figure, axes = pyplot.subplots(len(plots), 1, figsize=size, layout="constrained", squeeze=False)
    figure.suptitle(title, fontsize=10)
    for axis, plot in zip(axes[:, 0], plots, strict=True):
        _draw(axis, plot)
    figure.savefig(path, dpi=140)
    pyplot.close(figure)


def _draw(axes: Any, plot: Plot) -> None:
    colors = iter(PALETTE * len(plot.lines))
    for line in plot.lines:
        look = dict(color=COLORS.get(line.kind) or next(colors), marker="" if line.kind in COLORS else "o")
        x, y = zip(*line.points, strict=True)
        style = STYLES.get(line.kind, "-")
        axes.plot(x, y, style, linewidth=1, markersize=3, label=line.label or None, zorder=1, **look)
    for kind, text in plot.legend:
        points = [(marker.x, marker.y) for marker in plot.markers if marker.kind == kind]
        axes.scatter(*zip(*points, strict=True), s=8, color=COLORS[kind], label=text, linewidths=0, zorder=3)
    axes.set(xlim=(0, 1), ylim=(-0.02, NOT_FINITE), xlabel=plot.x_label, ylabel=plot.y_label)
    axes.set_xticks(*zip(*plot.x_ticks, strict=True))
    axes.set_yticks(*zip(*plot.y_ticks, strict=True))
    axes.legend(loc="best", frameon=False, fontsize=8)
