"""Fuzzes several targets one after the other in this process, and prints a JSON line for each.

python -m benchmarks.honest.batch --corpus FOLDER [--cases N] [--seconds N] [--seed N] [--backend NAME] TARGET...
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.errors import BackendError, TargetError, UsageError
from fuzz.report.json import run_json
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, start_worker_server, writable_findings_folder
from fuzz.run.watcher import Watcher
from fuzz.target.loader import load


def fuzz(options: RunOptions) -> Mapping[str, Any]:
    """The JSON value of a run; where the kernel cannot be run, its target and why."""
    try:
        target, backend = load(options.target), choose_backend(options.backend)
        folder = writable_findings_folder(target, None, options.corpus)
        return run_json(Fuzzer(options, target, backend, folder, Watcher(), environment.versions()).run())
    except (TargetError, BackendError) as error:
        return {"target": options.target, "error": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="cpu")
    asked = parser.parse_args()
    start_worker_server()
    for target in asked.targets:
        budget = dict(seconds=asked.seconds, cases=asked.cases, corpus=asked.corpus)
        try:
            print(json.dumps(fuzz(RunOptions(target, None, asked.backend, "auto", asked.seed, **budget))), flush=True)
        except UsageError as error:  # Its time ended before the first case.
            print(f"{target}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
