"""What saved cases show with the library on the path.

python -m benchmarks.archaeology.replay TARGET ENTRY...

Prints one JSON line for each entry: its path; `needs`, what is off its default in the least case; `shows`, which is
`disagrees`, `agrees` (the oracle of the finding examined the case and saw nothing), or why the case was not examined.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fuzz import corpus
from fuzz.errors import UsageError, one_line
from fuzz.model.entry import Entry
from fuzz.run.replay import Servers, load_target_of, open_triage, reproduces
from fuzz.run.setup import start_worker_server
from fuzz.target.spec import Target
from fuzz.triage.conditions import non_defaults
from fuzz.triage.triage import examines

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
    oracle = entry.finding.as_accuracy.oracle
    with open_triage(entry, name, loaded, BACKEND, servers) as triage:
        report = triage.examine(entry.case, oracle, clean=True)
    return AGREES if examines(report, oracle) else f"not examined: {report.outcome}"


def main(target: str, paths: list[str]) -> None:
    start_worker_server()
    with Servers() as servers:
        for path in paths:
            try:
                shown = replay(Path(path), target, servers)
            except UsageError as error:
                shown = {"needs": [], "shows": f"not run: {one_line(error)}"}
            print(json.dumps({"path": path, **shown}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
