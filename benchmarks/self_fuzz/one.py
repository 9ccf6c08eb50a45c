"""Fuzzes one surface in this process: python -m benchmarks.self_fuzz.one SURFACE --folder DIR. The last line is JSON.

With the package atheris by coverage, else by mutated seeds. The folder gets `corpus` (inputs that cover more) and
`crashes`, an input and a traceback each.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.self_fuzz import SEEDS, coverage_guided, mutation
from benchmarks.self_fuzz.crashes import Crashes

SERVICE = "service"
"""The surface that is a web service, which schemathesis sends requests to."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("surface")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    name, seeds = arguments.surface, SEEDS / arguments.surface
    crashes, corpus = Crashes(arguments.folder / "crashes"), arguments.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    if name == SERVICE:
        from benchmarks.self_fuzz import service

        ran = service.fuzz(seeds, arguments.seconds, arguments.seed, crashes)
    elif find_spec("atheris"):
        check = coverage_guided.import_surface(name)
        coverage_guided.fuzz(check, seeds, corpus, arguments.seconds, arguments.seed, crashes)
    else:
        from benchmarks.self_fuzz.surfaces import SURFACES

        texts = [path.read_bytes() for path in sorted(seeds.iterdir())]
        ran = mutation.fuzz(SURFACES[name], texts, arguments.seconds, arguments.seed, crashes)
    print(json.dumps({"executions": ran}))
    return int(bool(crashes.inputs))


if __name__ == "__main__":
    sys.exit(main())
