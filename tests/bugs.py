"""Findings and bugs made by hand, for tests of what becomes of them."""

from __future__ import annotations

from typing import Any

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.triage.bug import Bug, Example, Origin


def wrong_value(*outputs: str) -> Finding:
    return Finding("accuracy", outputs, "value", "wrong")


def make_bug(
    case: Case, *outputs: str, finding: Finding | None = None, also: tuple[Finding, ...] = (), **more: Any
) -> Bug:
    """A bug whose least case is the one that it was first seen in; without a finding, wrong values in the outputs."""
    shown = finding or wrong_value(*outputs)
    return Bug(Example(case, shown, also), Origin(case, shown.symptom), **more)
