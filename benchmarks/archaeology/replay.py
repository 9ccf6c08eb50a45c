"""What saved cases show with the library on the path.

python -m benchmarks.archaeology.replay TARGET SECONDS ENTRY...

Prints one JSON line for each entry that it begins within these seconds, one at least: its path; `needs`, what is off
its default in the least case; `shows`, which is `disagrees`, `agrees` (the oracle of the finding examined the case and
saw nothing like it), or why the case was not examined.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fuzz import corpus
from fuzz.errors import UsageError, one_line
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import AUTOGRAD, BOUNDS
from fuzz.oracles.autograd import graph_contexts
from fuzz.run.replay import Servers, load_target_of, open_triage, reproduces
from fuzz.run.setup import start_worker_server
from fuzz.target.spec import Target
from fuzz.triage.conditions import non_defaults
from fuzz.triage.examiner import examines

DISAGREES, AGREES = "disagrees", "agrees"
BACKEND = "cpu"


def replay(path: Path, target: str, servers: Servers) -> dict[str, object]:
    """The line of one entry."""
    entry = corpus.read(path)
    name, loaded = load_target_of(entry, path, target)
    return {"needs": sorted(non_defaults(entry.case, loaded)), "shows": show(entry, name, loaded, servers)}


def show(entry: Entry, name: str, loaded: Target, servers: Servers) -> str:
    """What an entry shows."""
    if reproduces(entry, name, loaded, BACKEND, servers):
        return DISAGREES
    if entry.finding is None:
        return AGREES
    finding = entry.finding.as_accuracy
    with open_triage(entry, name, loaded, BACKEND, servers) as triage:
        report = triage.examine(entry.case, finding.oracle, clean=True)
    again = report.finding_of(finding.oracle)
    if again and (again.shares_output(finding) or is_same_harm(again, finding)):
        return DISAGREES
    if again and finding.oracle == AUTOGRAD.name and comes_first(again, finding, loaded, entry.case):
        return f"not examined: {one_line(again.message)}"
    return AGREES if examines(report, finding.oracle) else f"not examined: {report.outcome}"


def is_same_harm(one: Finding, other: Finding) -> bool:
    """Whether both do the same to memory: kernels of two releases may call the same tensor otherwise."""
    symptoms = {BOUNDS.symptom_class(finding.symptom) for finding in (one, other)}
    return one.oracle == other.oracle == BOUNDS.name and len(symptoms) == 1


def comes_first(one: Finding, other: Finding, target: Target, case: Case) -> bool:
    """Whether one is of an earlier graph than the other may be: `autograd` ends with the first that disagrees."""
    contexts = list(graph_contexts(target, case))

    def places(finding: Finding) -> list[int]:
        named = [place for place, context in enumerate(contexts) if finding.message.endswith(context.circumstance)]
        return named or [place for place, context in enumerate(contexts) if context.symptom == finding.symptom]

    return min(places(one), default=-1) < max(places(other), default=-1)


def main(target: str, seconds: float, paths: Sequence[str]) -> None:
    """Prints the lines."""
    start_worker_server()
    end = time.monotonic() + seconds
    with Servers() as servers:
        for number, path in enumerate(paths):
            if number and time.monotonic() > end:
                break
            try:
                shown = replay(Path(path), target, servers)
            except UsageError as error:
                shown = {"needs": [], "shows": f"not run: {one_line(error)}"}
            print(json.dumps({"path": path, **shown}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
