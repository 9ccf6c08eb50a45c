"""Finds updates of one element by several programs of a launch, of which some may be lost, in a run of a solution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fuzz.judge.judgement import Evidence
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import SolutionReport
from fuzz.judge.script import RACES, WAITS
from fuzz.model.case import Case
from fuzz.model.finding import finding_order


def find_lost_updates(worker: IsolatedWorker, case: Case, solution: Path) -> Iterator[Evidence]:
    """Buffers of which programs load what others store, and store something else, without atomics.

    None where programs may wait for each other.
    """
    if WAITS.search(solution.read_text(encoding="utf-8", errors="replace")):
        return
    ran = worker.run(case, races=True)
    if not isinstance(ran, SolutionReport):
        return
    races = [one for one in ran.findings if one.symptom in RACES]
    updated = set.intersection(*({one.outputs for one in races if one.symptom == symptom} for symptom in RACES))
    places = {one.source_line: one for one in reversed(races) if one.outputs in updated}
    for finding in sorted(places.values(), key=finding_order):
        yield Evidence(
            finding.oracle, finding.outputs, finding.symptom, finding.message, "medium", "ordinary", case,
            details=(f"at {finding.source_line}", "programs that run at once lose updates"),
        )  # fmt: skip
