"""Adjudicates, explains and grades a saved case as it is, with the library on the path.

python -m benchmarks.archaeology.explain TARGET SECONDS ENTRY

The seconds are those of grading. `fuzz shrink` does the same once it has shrunk a case; this is for one that is not to
be shrunk.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.archaeology.replay import BACKEND
from fuzz import corpus
from fuzz.run.replay import load_target_of, open_triage
from fuzz.run.setup import start_worker_server
from fuzz.run.shrink_entry import replace_entry
from fuzz.shrink.shrinker import Budget
from fuzz.triage.severity import grade_bug


def main(target: str, seconds: str, path: Path) -> None:
    """Saves the entry with its verdict and its severity, if it disagrees."""
    start_worker_server()
    entry = corpus.read(path)
    assert entry.finding is not None
    name, loaded = load_target_of(entry, path, target)
    with open_triage(entry, name, loaded, BACKEND) as triage:
        bug = triage.confirm(entry.case, entry.finding.as_accuracy, ())
        if bug is not None:
            triage.explain(bug)
            if not bug.is_undecided:
                grade_bug(bug, triage, Budget(seconds=float(seconds)))
            replace_entry(path, entry, bug)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
