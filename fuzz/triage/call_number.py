"""Tells what shows in certain calls of a process from what shows by chance.

A launcher that counts its calls, or fills a cache, may be wrong in every third one. A case of one call then shows it in
some runs; so many equal calls, made by a new process, show it at the same call each time, as chance hardly does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import FAULT, find_oracle_spec

if TYPE_CHECKING:
    from fuzz.triage.triage import Triage

CALLS = 12
"""Equal calls that one process makes."""
PROCESSES = 4
"""Processes that must agree: what shows in 3 of 10 calls by chance does so in fewer than one of 300 tries."""


def equal_calls(case: Case, count: int) -> Case:
    """A case that makes the only call of another one so many times."""
    return replace(case, calls=case.calls * count, split=None)


def find_call(case: Case, finding: Finding, triage: Triage) -> tuple[Case, Finding] | None:
    """(equal calls up to the first that shows the finding, what that shows), of a case of one call.

    None where it is the first call of a process, or not the same call of each process, and where the finding's oracle
    does not look at each call.
    """
    if finding.oracle == FAULT.name or find_oracle_spec(finding.oracle).share:
        return None
    longer, found = equal_calls(case, CALLS), None
    for _ in range(PROCESSES):
        shown = triage.reproduce(longer, finding, clean=True)
        if shown is None or shown.call == 0 or found is not None and shown.call != found.call:
            return None
        found = shown
    assert found is not None
    return equal_calls(case, found.call + 1), found
