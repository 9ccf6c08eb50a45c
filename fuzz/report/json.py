"""Machine: results as JSON values that scripts may rely on; docs/command-line.md tells every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.model.entry import Entry
from fuzz.run.fuzzer import Result
from fuzz.triage.bug import Bug

VERSION = 1


def run_json(result: Result) -> Mapping[str, Any]:
    """The value that ``fuzz run --json`` prints."""
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
        "seconds": round(result.seconds, 3),
        "cases_per_second": round(statistics.cases / result.seconds, 1) if result.seconds else 0.0,
        "worst_ratio": statistics.worst,
        "oracles": dict(statistics.oracles),
        "engines": {name: dict(numbers) for name, numbers in result.engines.items()},
        "distribution": statistics.distribution(),
        "unconfirmed": result.unconfirmed,
        "interrupted": result.interrupted,
        "findings": [finding_json(bug) for bug in result.bugs],
    }


def finding_json(bug: Bug) -> Mapping[str, Any]:
    entry = Entry(bug.case, bug.reported_finding)
    return {
        "id": entry.name.removesuffix(".yaml"),
        "oracle": bug.reported_finding.oracle,
        "output": bug.reported_finding.output,
        "symptom": bug.reported_finding.symptom,
        "message": bug.reported_finding.message,
        "also": [other.summary for other in bug.also],
        "seen": "known" if bug.known else "new",
        "verdict": bug.verdict.name,
        "reason": bug.verdict.reason,
        "digits": bug.verdict.digits,
        "proof": bug.verdict.proof,
        "path": bug.path,
        "calls": len(bug.case.calls),
        "dims": dict(bug.case.last.dims),
        "elements": bug.case.elements(),
        "rate": [bug.rate.shown, bug.rate.runs],
        "rate_interval": [round(end, 4) for end in bug.rate.interval],
        "first_case": bug.first_index,
        "first_seconds": round(bug.first_seconds, 3),
        "hits": bug.hits,
        "executions": bug.executions,
        "witnesses": dict(bug.cross_checks),
        "diagnosis": "; ".join(bug.diagnosis) or bug.reported_finding.message,
    }
