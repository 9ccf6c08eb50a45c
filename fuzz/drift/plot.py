"""Plot: drift against depth for every batch size, with the error against the truth and the envelope."""

from __future__ import annotations

from pathlib import Path

from fuzz.drift.plan import BatchDrift, DriftPlan
from fuzz.sweep.plot import GUIDE, figures

COLORS = ("#20639b", "#d1495b", "#3caea3", "#edae49", "#6a4c93", "#8d6e63")


def save(path: Path, plan: DriftPlan, found: list[BatchDrift]) -> None:
    """One line of drift for every batch size; truth and envelope are those of the largest, whose rows are alike."""
    pyplot = figures()
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    still = []
    for place, rows in enumerate(found):
        depth = [row.layer for row in rows.rows]
        drift = [row.drift for row in rows.rows]
        if not any(drift):
            still.append(str(rows.rows[0].batch))
            continue
        # What is 0 has no place on a logarithmic axis.
        shown = [value or float("nan") for value in drift]
        label = f"drift, batch of {rows.rows[0].batch}"
        axes.plot(depth, shown, marker="o", markersize=3, color=COLORS[place % len(COLORS)], label=label)
    last = found[-1].rows
    depth = [row.layer for row in last]
    size = last[0].batch
    axes.plot(depth, [row.truth_error for row in last], color="black", linestyle="--", linewidth=1.2,
              label=f"error against float64, batch of {size}")  # fmt: skip
    axes.plot(depth, [row.envelope for row in last], color=GUIDE, linewidth=1.2, label="envelope of honest rounding")
    if still:
        axes.plot([], [], " ", label=f"no drift at all: batch of {', '.join(still)}")
    axes.set_yscale("log")
    axes.set_xlabel("layer")
    axes.set_ylabel("mean absolute difference of the last row")
    axes.set_xlim(0.5, plan.layers + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    options = "".join(f", {name} = {value}" for name, value in plan.options.items())
    bug = f" with {plan.planted}" if plan.planted else ""
    axes.set_title(f"{plan.target}{bug}, {plan.dtype} on {plan.backend}{options}", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=140)
    pyplot.close(figure)
