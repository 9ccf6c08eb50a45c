"""Table: a sweep as text for people and as the JSON value that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.model.dtypes import decimal
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.report.json import finding_json
from fuzz.run.fuzzer import Result
from fuzz.sweep.counts import OVER, SweepCounts
from fuzz.sweep.plan import SweepPlan

INTERVALS = 20
"""Intervals of wrong signs that are told one by one."""


def fixed_values(plan: SweepPlan) -> dict[str, str]:
    """What the arguments that are not swept hold, and the options."""
    tensors = {name: decimal(word, named_dtype(dtype)) for name, (dtype, word) in plan.fixed.items()}
    return {**tensors, **{name: str(value) for name, value in plan.options.items()}}


def sweep_json(plan: SweepPlan, tally: SweepCounts, result: Result | None, seconds: float) -> Mapping[str, Any]:
    """The value that ``fuzz sweep --json`` prints; docs/command-line.md tells every field."""
    other = tally.other
    return {
        "target": plan.target,
        "planted": plan.planted,
        "backend": plan.backend,
        "dtype": plan.dtype,
        "arguments": list(plan.swept),
        "fixed": fixed_values(plan),
        "exhaustive": plan.exhaustive,
        "count": tally.count,
        "regions": tally.regions(),
        "over": {str(limit): int(n) for limit, n in zip(OVER, tally.over, strict=True)},
        "wrong_sign": [list(run) for run in tally.runs],
        "wrong_signs": other["sign"],
        "nan": {"count": other["nan"], "differ": other["nan_differs"]},
        "infinite": {"count": other["infinite"], "differ": other["infinite_differs"]},
        "nonfinite": other["nonfinite"],
        "flushed": other["flushed"],
        "not_correctly_rounded": other["inexact"],
        "settled": other["settled"],
        "undecided": other["undecided"],
        "broken": dict(tally.symptoms),
        "failed": [text for _, text in tally.failed],
        "seconds": round(seconds, 3),
        "findings": [finding_json(bug) for bug in result.bugs] if result else [],
    }


def heading(plan: SweepPlan) -> str:
    """What is swept, in one line."""
    bug = f", planted {plan.planted}" if plan.planted else ""
    what = " and ".join(plan.swept)
    much = "every value" if plan.exhaustive else f"{plan.count:,} values, every sign and exponent evenly,"
    if plan.pairs:
        much = "every pair of values" if plan.exhaustive else f"about {plan.count:,} pairs, every exponent evenly,"
    rest = ", ".join(f"{name} = {text}" for name, text in fixed_values(plan).items())
    return f"{plan.target}{bug}: {much} of {what} in {plan.dtype}" + (f", with {rest}" if rest else "")


def text_of(plan: SweepPlan, tally: SweepCounts) -> str:
    """The whole table."""
    return "\n".join([heading(plan), "", *rows(tally), "", *shares(tally), *signs(tally), *rest(plan, tally)])


def rows(tally: SweepCounts) -> Iterator[str]:
    yield f"{'region':<19}{'x':<13}{'count':>13}{'mean ULP':>11}{'max ULP':>11}{'mean steps':>12}{'max steps':>15}"
    for one in tally.regions():
        units = f"{short(one['mean_ulp']):>11}{short(one['max_ulp']):>11}"
        steps = f"{short(one['mean_ordinal']):>12}{one['max_ordinal']:>15,}"
        yield f"{one['name']:<19}{one['range']:<13}{one['count']:>13,}{units}{steps}"


def short(value: float) -> str:
    """A number in at most nine characters."""
    if value == 0 or 0.01 <= value < 1e5:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def shares(tally: SweepCounts) -> Iterator[str]:
    total = max(int(tally.number.sum()), 1)
    parts = [f"{limit}: {int(n):,} ({n / total:.2%})" for limit, n in zip(OVER, tally.over, strict=True)]
    yield "over so many ULP   " + "   ".join(parts)


def signs(tally: SweepCounts) -> Iterator[str]:
    if not tally.runs:
        yield "wrong sign         none"
        return
    word = "interval" if len(tally.runs) == 1 else "intervals"
    yield f"wrong sign         {tally.other['sign']:,} results, in {len(tally.runs)} {word} of the swept value:"
    for low, high in tally.runs[:INTERVALS]:
        yield f"                   {low!r} to {high!r}"
    if len(tally.runs) > INTERVALS:
        yield f"                   and {len(tally.runs) - INTERVALS} more"


def rest(plan: SweepPlan, tally: SweepCounts) -> Iterator[str]:
    other = tally.other
    yield f"not finite         {other['nan']:,} NaN inputs, {other['nan_differs']:,} with another result than due"
    yield f"                   {other['infinite']:,} infinite inputs, {other['infinite_differs']:,} with another result"
    yield f"                   {other['nonfinite']:,} finite inputs whose result is wrongly infinite, NaN or finite"
    yield f"flushed            {other['flushed']:,} subnormal results came as 0, not counted above"
    decided = f"{other['settled']:,} values by arbitrary precision, {other['undecided']:,} undecided"
    yield f"correctly rounded  by float64 where it is certain; {decided}"
    if tally.failed:
        yield f"failed             the kernel did not return: {tally.failed[0][1]}"
    if tally.wrong:
        parts = ", ".join(f"{n:,} {symptom}" for symptom, n in tally.symptoms.items())
        yield f"contract           broken at {tally.wrong:,} of {tally.count:,} values: {parts}"
    elif not tally.failed:
        every = "every one of " if plan.exhaustive else ""
        if plan.large:
            every = f"the {other['judged']:,} values of largest error among "
        yield f"contract           kept by {every}{tally.count:,} values{proof(plan, tally)}"


def proof(plan: SweepPlan, tally: SweepCounts) -> str:
    """What an exhaustive sweep proves."""
    if not plan.exhaustive or tally.other["nonfinite"]:
        return ""
    most = float(tally.most.max())
    what = f"an error of at most {short(most)} ULP" if most else "correct rounding"
    return f"; {what} is proved, for {plan.backend} and these settings"
