"""Makes the JSON values of results, on which scripts may rely; docs/command-line.md explains every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from fuzz.model.grade import Grade
from fuzz.run.derived_rejects import SEVERITY, AcceptedInput
from fuzz.run.result import Result
from fuzz.triage.bug import Bug, group_for_report

VERSION = 1


def run_json(result: Result, profile: bool = False) -> Mapping[str, Any]:
    """The value that ``fuzz run --json`` prints, with `profile` where the time went."""
    statistics, options = result.statistics, result.options
    return {
        "version": VERSION,
        "target": options.target,
        "planted": options.planted,
        "backend": result.backend,
        "engine": options.engine,
        "seed": options.seed,
        "cases": statistics.cases,
        "rejected": statistics.rejected,
        "not_run": statistics.not_run,
        "not_run_reason": result.lack,
        "plans_left_out": statistics.left_out,
        "seconds": round(result.seconds, 3),
        "cases_per_second": round(statistics.cases / result.seconds, 1) if result.seconds else 0.0,
        "worst_ratio": statistics.worst,
        "oracles": dict(statistics.oracles),
        "engines": {name: dict(numbers) for name, numbers in result.engines.items()},
        "distribution": statistics.distribution(),
        **({"profile": {name: round(spent, 3) for name, spent in result.profile.items()}} if profile else {}),
        "unconfirmed": result.unconfirmed,
        "grid_order_only": result.grid_order_only,
        "interrupted": result.interrupted,
        "cut_off": {
            "calls": result.calls_cut_off,
            "disagreements": len(result.disagreements_cut_off),
            "unexplained": len(result.unexplained_cut_off),
        },
        "derived_rejects": {
            "tried": result.invalid_inputs.tried,
            "accepted": [accepted_json(accepted) for accepted in result.invalid_inputs.accepted],
        },
        "findings": findings_json(result.bugs),
    }


def accepted_json(accepted: AcceptedInput) -> Mapping[str, Any]:
    """The value of an invalid input that was not refused."""
    invalid = accepted.input
    return {
        "argument": invalid.argument,
        "kind": invalid.kind,
        "severity": SEVERITY,
        "input": invalid.what,
        "harm": accepted.harm.message,
        "source_line": accepted.harm.source_line,
        "dims": dict(invalid.call.dims),
    }


def findings_json(bugs: Sequence[Bug]) -> list[Mapping[str, Any]]:
    """The values of a run's findings in the order of their cases, each with the one whose cause it possibly shares."""
    of_first = {id(other): bug_id(first) for first, others in group_for_report(bugs) for other in others}
    return [
        {**finding_json(bug), "possibly_same_cause_as": of_first.get(id(bug))}
        for bug in sorted(bugs, key=lambda bug: bug.origin.index)
    ]


def bug_id(bug: Bug) -> str:
    """The name of a bug's entry, by which JSON values refer to it."""
    return bug.to_entry().name.removesuffix(".yaml")


def finding_json(bug: Bug) -> Mapping[str, Any]:
    """The value of one finding, in every command's JSON and in notifications."""
    least, finding = bug.least, bug.least.reported_finding
    entry = bug.to_entry()
    return {
        "id": bug_id(bug),
        "oracle": finding.oracle,
        "output": finding.output,
        "symptom": finding.symptom,
        "severity": entry.severity,
        "input_class": bug.grade.input_class if bug.grade else None,
        "typical": typical_json(bug.grade),
        "message": finding.message,
        "also": list(entry.also),
        "seen": "known" if bug.known else "new",
        "verdict": least.verdict.name,
        "reason": least.verdict.reason,
        "digits": least.verdict.digits,
        "proof": least.verdict.proof,
        "path": bug.path,
        "calls": len(bug.case.calls),
        "dims": dict(bug.case.last.dims),
        "elements": bug.case.elements(),
        "rate": [bug.rate.disagreements, bug.rate.runs],
        "rate_interval": [round(end, 4) for end in bug.rate.interval],
        "first_case": bug.origin.index,
        "first_seconds": round(bug.origin.seconds, 3),
        "hits": bug.hits,
        "executions": bug.executions,
        "cut_off": bug.cut_off,
        "witnesses": dict(least.cross_checks),
        "diagnosis": "; ".join(least.diagnosis) or finding.message,
    }


def typical_json(grade: Grade | None) -> Mapping[str, Any] | None:
    """The value of a finding's typical case; null where it is not graded, or where no drawn input shows it."""
    if grade is None or grade.typical is None:
        return None
    return {
        "dims": dict(grade.typical.case.last.dims),
        "rate": [grade.typical.rate.disagreements, grade.typical.rate.runs],
        "eager_ratio": grade.eager_ratio if isfinite(grade.eager_ratio or 0.0) else None,
    }
