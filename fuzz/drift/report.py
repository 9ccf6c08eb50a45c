"""Table: drift as text for people and as the JSON value that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.drift.plan import BatchDrift, DriftPlan
from fuzz.drift.runner import broken
from fuzz.report.json import finding_json
from fuzz.run.fuzzer import Result


def drift_json(plan: DriftPlan, found: list[BatchDrift], result: Result | None) -> Mapping[str, Any]:
    """The value that ``fuzz drift --json`` prints; docs/command-line.md tells every field."""
    return {
        "target": plan.target,
        "planted": plan.planted,
        "backend": plan.backend,
        "dtype": plan.dtype,
        "layers": plan.layers,
        "dims": dict(plan.dims),
        "options": dict(plan.options),
        "promise": "bitwise" if plan.bitwise else "envelope",
        "rows": [
            {
                "batch": row.batch,
                "layer": row.layer,
                "drift": row.drift,
                "truth_error": row.truth_error,
                "envelope": finite(row.envelope),
                "differ": row.differ,
                "beyond": row.beyond,
            }
            for rows in found
            for row in rows.rows
        ],
        "broken": any(broken(plan, row) for rows in found for row in rows.rows),
        "findings": [finding_json(bug) for bug in result.bugs] if result else [],
    }


def finite(value: float) -> float | None:
    """A number that JSON can hold; an envelope without a bound is null."""
    return value if abs(value) < float("inf") else None


def heading(plan: DriftPlan) -> str:
    bug = f", planted {plan.planted}" if plan.planted else ""
    sizes = " ".join(f"{name}={size}" for name, size in plan.dims.items())
    options = "".join(f", {name} = {value}" for name, value in plan.options.items())
    much = f"{plan.layers} layers of {plan.dtype}, {sizes}{options}, on {plan.backend}"
    return f"{plan.target}{bug}: {much}; the last row of a batch against the same row alone"


def text_of(plan: DriftPlan, found: list[BatchDrift]) -> str:
    """The whole table: of each batch size some layers."""
    return "\n".join([heading(plan), "", *lines(plan, found), "", verdict(plan, found)])


def lines(plan: DriftPlan, found: list[BatchDrift]) -> Iterator[str]:
    yield f"{'batch':>6}{'layer':>7}{'drift':>12}{'from truth':>12}{'envelope':>12}   elements with other bits"
    shown = sorted({1, 2, 5, 10, 15, plan.layers} & set(range(1, plan.layers + 1)))
    for rows in found:
        for row in rows.rows:
            if row.layer in shown:
                beyond = f", {row.beyond} beyond the envelope" if row.beyond else ""
                numbers = f"{row.drift:>12.3g}{row.truth_error:>12.3g}{row.envelope:>12.3g}"
                yield f"{row.batch:>6}{row.layer:>7}{numbers}   {row.differ}{beyond}"


def verdict(plan: DriftPlan, found: list[BatchDrift]) -> str:
    """Whether the promise is kept."""
    promise = "the same bits" if plan.bitwise else "drift inside the envelope"
    wrong = [row for rows in found for row in rows.rows if broken(plan, row)]
    if not wrong:
        return f"promised: {promise}; kept at every layer"
    first = wrong[0]
    return f"promised: {promise}; broken first at layer {first.layer} of a batch of {first.batch}"
