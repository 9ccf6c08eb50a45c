"""Fuzzes one target after the other in this process, as lines of standard input ask, and answers each by a JSON line.

python -m benchmarks.honest.batch --corpus FOLDER [--backend NAME] [--engine NAME] [--replicas N]

A line is {"target": NAME, "corpus": NAME, "seed": N, "cases": N, "seconds": N}; findings go into the folder of that
name in the corpus. The last two are limits and may be missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.errors import BackendError, CorpusError, TargetError, UsageError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.provenance import Provenance
from fuzz.report.json import run_json
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, start_worker_server, writable_findings_folder
from fuzz.run.watcher import Watcher
from fuzz.target.loader import load

MOST_KEPT = 3
"""Disagreements of a run that its end cut off that are kept as entries, and reasons of those that are no finding."""


class Keeper(Watcher):
    """Keeps what a run found no time for as entries in `folder`, and why disagreements are no finding."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.backend = folder, backend
        self.entries: list[str] = []
        self.reasons: list[str] = []

    def on_cut_off(self, case: Case, finding: Finding, index: int) -> None:
        if len(self.entries) < MOST_KEPT:
            seen = Provenance(self.backend, environment.versions(), first_case=index, cut_off="confirmation")
            try:
                self.entries.append(str(corpus.save_entry(self.folder, Entry(case, finding, provenance=seen))))
            except CorpusError as error:
                self.entries.append(str(error))

    def on_unconfirmed(self, finding: Finding, index: int, reason: str) -> None:
        if len(self.reasons) < MOST_KEPT:
            self.reasons.append(f"case {index}: {finding.message}: {reason}")


def fuzz(options: RunOptions) -> Mapping[str, Any]:
    """The JSON value of a run; where the kernel cannot be run, its target and why."""
    try:
        target, backend = load(options.target), choose_backend(options.backend)
        folder = writable_findings_folder(target, None, options.corpus)
        keeper = Keeper(folder.with_name(f"{folder.name}-cut-off"), options.backend)
        result = Fuzzer(options, target, backend, folder, keeper, environment.versions()).run()
        return {**run_json(result), "kept": keeper.entries, "reasons": keeper.reasons}
    except (TargetError, BackendError) as error:
        return {"target": options.target, "error": str(error)}
    except UsageError as error:  # Its time ended before the first case.
        return {"target": options.target, "cases": 0, "why": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--replicas", type=int)
    asked = parser.parse_args()
    start_worker_server()
    for line in sys.stdin:
        request = json.loads(line)
        folder = asked.corpus / request.pop("corpus")
        options = RunOptions(
            backend=asked.backend,
            engine=asked.engine,
            workers=1,
            corpus=folder,
            first_replicas=asked.replicas,
            **request,
        )
        print(json.dumps(fuzz(options)), flush=True)


if __name__ == "__main__":
    main()
