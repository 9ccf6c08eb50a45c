"""Makes the JSON values of results, on which scripts may rely; docs/command-line.md explains every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        "cut_off": {"calls": result.calls_cut_off, "disagreements": result.disagreements_cut_off},
        "findings": [finding_json(bug) for bug in sorted(result.bugs, key=lambda bug: bug.origin.index)],
    }


def finding_json(bug: Bug) -> Mapping[str, Any]:
    """The value of one finding, in every command's JSON and in notifications."""
    least, finding = bug.least, bug.least.reported_finding
    entry = bug.to_entry()
    return {
        "id": entry.name.removesuffix(".yaml"),
        "oracle": finding.oracle,
        "output": finding.output,
        "symptom": finding.symptom,
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
