"""Writes a judgement: one screen of text for people, and the JSON value that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.escaping import printable
from fuzz.judge.result.judgement import Evidence, Judgement
from fuzz.judge.result.score import reason_codes, score
from fuzz.model.layout import CONTIGUOUS
from fuzz.report.entry_text import case_lines, severity_lines
from fuzz.report.json import typical_json

VERSION = 1


def judgement_json(judgement: Judgement) -> Mapping[str, Any]:
    """The value that ``fuzz judge --json`` prints; docs/judge.md explains every field."""
    rule = judgement.own_rule
    return {
        "version": VERSION,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "severity": judgement.severity,
        "score": score(judgement),
        "codes": reason_codes(judgement),
        "problem": judgement.problem,
        "solution": judgement.solution,
        "backend": judgement.backend,
        "seconds": round(judgement.seconds, 3),
        "cases": judgement.cases,
        "calls": judgement.calls,
        "dims": {name: list(ends) for name, ends in judgement.dims.items()},
        "launches": judgement.launches,
        "refused": judgement.refused,
        "own_rule": None if rule is None else "passes" if rule else "fails",
        "kinds": judgement.kinds,
        "notes": judgement.notes,
        "assumes": assumptions(judgement),
        "findings": [evidence_json(one) for one in judgement.evidence],
        "undecided": [evidence_json(one) for one in judgement.undecided],
    }


def evidence_json(evidence: Evidence) -> Mapping[str, Any]:
    """One finding; the fields are named as those of ``fuzz run --json``."""
    least = evidence.least
    return {
        "oracle": evidence.oracle,
        "output": "+".join(evidence.outputs),
        "symptom": evidence.symptom,
        "severity": evidence.severity,
        "input_class": evidence.input_class or None,
        "typical": typical_json(evidence.grade),
        "message": evidence.message,
        "verdict": evidence.verdict or None,
        "reason": evidence.reason,
        "rate": [evidence.rate.disagreements, evidence.rate.runs],
        "calls": len(least.calls) if least else 0,
        "dims": dict(least.last.dims) if least else {},
        "elements": least.elements() if least else 0,
        "case": list(case_lines(least)) if least else [],
        "diagnosis": "; ".join(evidence.details),
        "cut_off": evidence.cut_off,
    }


def assumptions(judgement: Judgement) -> list[str]:
    """What a solution takes for granted that the problem does not promise."""
    strided = any(
        one.input_class == "layout" and one.least is not None
        and any(value.layout != CONTIGUOUS for value in one.least.last.arguments.values())
        for one in judgement.evidence
    )  # fmt: skip
    return ["contiguous"] if strided else []


def format_judgement(judgement: Judgement) -> str:
    """A judgement on one screen."""
    return "\n".join(map(printable, judgement_lines(judgement)))


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    severity = f" ({judgement.severity})" if judgement.verdict in ("WRONG", "CHEAT") and judgement.severity else ""
    yield f"{judgement.verdict}{severity}   {judgement.reason}"
    yield ""
    yield f"  problem   {judgement.problem}"
    yield f"  solution  {judgement.solution}"
    for one in (*judgement.evidence, *judgement.undecided):
        yield ""
        yield from (f"  {line}" for line in evidence_lines(one, judgement.reason))
    yield ""
    if judgement.cases:
        yield from (f"  {line}" for line in summary_lines(judgement))
    if judgement.refused:
        yield f"  refuses   {judgement.refused} of these, which the problem's own code takes"
    for note in judgement.notes:
        yield f"  note      {note}"
    if judgement.command:
        yield f"  repeat    {judgement.command}"


def evidence_lines(evidence: Evidence, reason: str) -> Iterator[str]:
    """What is shown of evidence, below the reason of the judgement, which is not said twice."""
    message = "" if evidence.message == reason else f": {evidence.message}"
    severity = f"undecided, {evidence.severity} if it is wrong" if evidence.is_open else evidence.severity
    yield f"{severity}: {evidence.oracle}/{evidence.symptom}{message}"
    if evidence.least is not None:
        yield from (f"  least     {line}" for line in case_lines(evidence.least))
    if evidence.cut_off:
        yield f"  cut off   {evidence.cut_off}: the time for it ended"
    if evidence.grade is not None:
        yield from (f"  {line}" for line in severity_lines(evidence.grade))
    if evidence.verdict in ("kernel", "unadjudicated"):
        certified = "by exact values" if evidence.verdict == "kernel" else f"not by exact values: {evidence.reason}"
        yield f"  certified {certified}"
    yield from (f"  {text}" for text in evidence.details)


def summary_lines(judgement: Judgement) -> Iterator[str]:
    dims = ", ".join(f"{name} {low}..{high}" for name, (low, high) in judgement.dims.items()) or "none are free"
    counts = f"{judgement.cases}, {judgement.calls} calls, {judgement.launches} launches"
    yield f"cases     {counts}, {judgement.seconds:.1f} s"
    yield f"varied    {'; '.join([f'dims {dims}', *judgement.kinds])}"
    if judgement.own_rule is not None:
        yield f"own rule  the format's own rule says: {'passes' if judgement.own_rule else 'fails'}"
    if found := assumptions(judgement):
        yield f"assumes   {', '.join(found)}"
