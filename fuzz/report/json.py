"""Machine: results as JSON values that scripts may rely on; docs/command-line.md tells every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.model.entry import Entry
from fuzz.run.fuzzer import Result
from fuzz.triage.bug import Record

VERSION = 1


def run_json(result: Result) -> Mapping[str, Any]:
    """The value that ``fuzz run --json`` prints."""
    statistics, run = result.statistics, result.run
    return {
        "version": VERSION,
        "target": run.target,
        "planted": run.planted,
        "backend": result.backend,
        "engine": run.engine,
        "seed": run.seed,
        "cases": statistics.cases,
        "rejected": statistics.rejected,
        "seconds": round(result.seconds, 3),
        "cases_per_second": round(statistics.cases / result.seconds, 1) if result.seconds else 0.0,
        "worst_ratio": statistics.worst,
        "oracles": dict(statistics.oracles),
        "engines": {name: dict(numbers) for name, numbers in result.engines.items()},
        "distribution": statistics.distribution(),
        "unconfirmed": result.unconfirmed,
        "interrupted": result.interrupted,
        "findings": [finding_json(record) for record in result.records],
    }


def finding_json(record: Record) -> Mapping[str, Any]:
    entry = Entry(record.case, record.filing)
    return {
        "id": entry.name.removesuffix(".yaml"),
        "oracle": record.filing.oracle,
        "output": record.filing.output,
        "symptom": record.filing.symptom,
        "message": record.filing.message,
        "also": [f"{found.oracle} {found.output} {found.symptom}" for found in record.also],
        "seen": "known" if record.known else "new",
        "verdict": record.verdict.name,
        "reason": record.verdict.reason,
        "digits": record.verdict.digits,
        "path": record.path,
        "calls": len(record.case.calls),
        "dims": dict(record.case.last.dims),
        "elements": record.case.elements(),
        "rate": [record.rate.shown, record.rate.runs],
        "rate_interval": [round(end, 4) for end in record.rate.interval],
        "first_case": record.first_index,
        "first_seconds": round(record.first_seconds, 3),
        "hits": record.hits,
        "executions": record.executions,
        "witnesses": dict(record.witnesses),
        "diagnosis": "; ".join(record.diagnosis) or record.filing.message,
    }
