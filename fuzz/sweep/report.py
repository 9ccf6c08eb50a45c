"""Reports a sweep: a table and plots for people, and the JSON value that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fuzz.model.dtypes import from_bits
from fuzz.report.json import finding_json
from fuzz.report.plotting.plot_data import Line, Linear, Marker, Plot, Ticks, format_tick, plot_values, scale_of_ulps
from fuzz.run.result import Result
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.ranks import bits_at
from fuzz.sweep.sweep_counts import BINS, BOUNDS, NEAR_VIEW, OVER, SweepCounts

MAX_INTERVALS = 20
"""Intervals of wrong signs that are listed one by one."""
KINDS = (("right", "right sign"), ("wrong", "wrong sign"))


def sweep_json(plan: SweepPlan, counts: SweepCounts, result: Result | None, seconds: float) -> Mapping[str, Any]:
    """The value that ``fuzz sweep --json`` prints; docs/command-line.md describes every field."""
    other = counts.other
    return {
        "target": plan.target,
        "planted": plan.planted,
        "backend": plan.backend,
        "dtype": plan.dtype,
        "arguments": list(plan.swept),
        "fixed": plan.fixed,
        "exhaustive": plan.exhaustive,
        "count": counts.count,
        "regions": counts.regions(),
        "over": {str(limit): int(n) for limit, n in zip(OVER, counts.over, strict=True)},
        "wrong_sign": [list(run) for run in counts.sign_runs],
        "wrong_signs": other["sign"],
        "nan": {"count": other["nan"], "differ": other["nan_differs"]},
        "infinite": {"count": other["infinite"], "differ": other["infinite_differs"]},
        "nonfinite": other["nonfinite"],
        "flushed": other["flushed"],
        "not_correctly_rounded": other["inexact"],
        "settled": other["decided"],
        "undecided": other["undecided"],
        "broken": dict(counts.symptoms),
        "failed": [text for _, text in counts.failed],
        "seconds": round(seconds, 3),
        "findings": [finding_json(bug) for bug in result.bugs] if result else [],
    }


def format_heading(plan: SweepPlan) -> str:
    """What is swept, in one line."""
    bug = f", planted {plan.planted}" if plan.planted else ""
    what = " and ".join(plan.swept)
    much = "every value" if plan.exhaustive else f"{plan.count:,} values, every sign and exponent evenly,"
    if plan.pairs:
        much = "every pair of values" if plan.exhaustive else f"about {plan.count:,} pairs, every exponent evenly,"
    rest = ", ".join(f"{name} = {text}" for name, text in plan.fixed.items())
    return f"{plan.target}{bug}: {much} of {what} in {plan.dtype}" + (f", with {rest}" if rest else "")


def format_table(plan: SweepPlan, counts: SweepCounts) -> str:
    """The whole table."""
    total = max(int(counts.values.sum()), 1)
    over = (f"{limit}: {int(n):,} ({n / total:.2%})" for limit, n in zip(OVER, counts.over, strict=True))
    rest = f"over so many ULP   {'   '.join(over)}", *format_signs(counts), *format_rest(plan, counts)
    return "\n".join([format_heading(plan), "", *format_rows(counts), "", *rest])


def format_rows(counts: SweepCounts) -> Iterator[str]:
    yield f"{'region':<19}{'x':<13}{'count':>13}{'mean ULP':>11}{'max ULP':>11}{'mean steps':>12}{'max steps':>15}"
    for region in counts.regions():
        units = f"{format_number(region['mean_ulp']):>11}{format_number(region['max_ulp']):>11}"
        steps = f"{format_number(region['mean_ordinal']):>12}{region['max_ordinal']:>15,}"
        yield f"{region['name']:<19}{region['range']:<13}{region['count']:>13,}{units}{steps}"


def format_number(value: float) -> str:
    """A number in at most nine characters."""
    if value == 0 or 0.01 <= value < 1e5:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def format_signs(counts: SweepCounts) -> Iterator[str]:
    if not counts.sign_runs:
        yield "wrong sign         none"
        return
    word = "interval" if len(counts.sign_runs) == 1 else "intervals"
    yield f"wrong sign         {counts.other['sign']:,} results, in {len(counts.sign_runs)} {word} of the swept value:"
    for low, high in counts.sign_runs[:MAX_INTERVALS]:
        yield f"                   {low!r} to {high!r}"
    if len(counts.sign_runs) > MAX_INTERVALS:
        yield f"                   and {len(counts.sign_runs) - MAX_INTERVALS} more"


def format_rest(plan: SweepPlan, counts: SweepCounts) -> Iterator[str]:
    other = counts.other
    yield f"not finite         {other['nan']:,} NaN inputs, {other['nan_differs']:,} with another result than due"
    yield f"                   {other['infinite']:,} infinite inputs, {other['infinite_differs']:,} with another result"
    yield f"                   {other['nonfinite']:,} finite inputs whose result is wrongly infinite, NaN or finite"
    yield f"flushed            {other['flushed']:,} subnormal results came as 0, not counted above"
    decided = f"{other['decided']:,} values by arbitrary precision, {other['undecided']:,} undecided"
    yield f"correctly rounded  by float64 where it is certain; {decided}"
    if counts.failed:
        yield f"failed             the kernel did not return: {counts.failed[0][1]}"
    if counts.wrong:
        parts = ", ".join(f"{n:,} {symptom}" for symptom, n in counts.symptoms.items())
        yield f"contract           broken at {counts.wrong:,} of {counts.count:,} values: {parts}"
    elif not counts.failed:
        every = "every one of " if plan.exhaustive else ""
        if plan.large:
            every = f"the {other['judged']:,} values of largest error among "
        yield f"contract           kept by {every}{counts.count:,} values{format_error_bound(plan, counts)}"


def format_error_bound(plan: SweepPlan, counts: SweepCounts) -> str:
    """The largest error over all finite values, which only an exhaustive sweep knows; empty for others.

    It is empty as well where no finite input has a finite result.
    """
    if not plan.exhaustive or not counts.values.any() or counts.other["nonfinite"] or counts.other["unbounded"]:
        return ""
    most = float(counts.maxima[0].max())
    what = f"an error of at most {format_number(most)} ULP" if most else "correct rounding"
    # Inputs that are not finite have no error in ULP, and may have another result than due.
    every = "finite inputs" if counts.other["nan_differs"] or counts.other["infinite_differs"] else "values"
    return f"; {what} over all {every}, for {plan.backend} and these settings"


def make_plots(plan: SweepPlan, counts: SweepCounts) -> list[Plot]:
    """All values by their rank in the order of values, and those from -NEAR_VIEW to NEAR_VIEW by value."""
    name, x = plan.swept[0], Linear(-NEAR_VIEW, NEAR_VIEW)
    edges = [(x.position(value), format_tick(value)) for value in (-NEAR_VIEW, *BOUNDS, NEAR_VIEW)]
    return [
        _plot(counts.bins[0], f"{name}, all values evenly in their order", _rank_ticks(plan), ()),
        _plot(counts.bins[1], f"{name}; dotted: the ends of the table's regions", tuple(edges), tuple(edges[1:-1])),
    ]


def _plot(bins: np.ndarray, x_label: str, x_ticks: Ticks, guides: Ticks) -> Plot:
    """The largest error of each bin, of values with the right and with the wrong sign."""
    y = scale_of_ulps(bins[~np.isnan(bins)].tolist())
    lines = [Line("guide", ((0.0, y.position(1.0)), (1.0, y.position(1.0))))]
    lines += [Line("guide", ((x, 0.0), (x, 1.0))) for x, _ in guides]
    values = [
        Marker(index + 0.5, float(errors[index]), kind)
        for (kind, _), errors in zip(KINDS, bins, strict=True)
        for index in np.flatnonzero(~np.isnan(errors)).tolist()
    ]
    return plot_values("", "", (x_label, "largest error, ULP"), Linear(0, BINS), y, values, KINDS, lines, x_ticks)


def _rank_ticks(plan: SweepPlan) -> Ticks:
    """Ticks at every sixteenth of the order of values, but for what is not finite."""
    shares = np.arange(16) / 16
    values = from_bits(bits_at((shares * (1 << plan.kind.bits)).astype(np.uint64), plan.kind), plan.kind)
    pairs = zip(shares.tolist(), values.tolist(), strict=True)
    return tuple((share, format_tick(float(f"{value:.0e}"))) for share, value in pairs if np.isfinite(value))
