"""A kernel that corrupts the CUDA context costs one worker: `python3 benchmarks/reliability/corrupt.py`, with a GPU.

A campaign over `contexts.py` with one host. The two kernels that corrupt the context must each become one finding under
`fault`, the wrong one beside them its own, the right one none; every job must run its share, and no slice be lost.
The extra [service] must be installed; docs/reliability.md says how packages travel to a machine without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fuzz.campaign.config import parse_config
from fuzz.campaign.runner import run_campaign

TARGETS = str(Path(__file__).with_name("contexts.py"))
DUE = {"strays": "fault", "asserts": "fault", "wrong": "accuracy"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400, help="of all four targets together")
    parser.add_argument("--backend", default="cuda")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-corrupt-") as text:
        paths = {"corpus": f"{text}/corpus", "store": f"sqlite:///{text}/store", "folder": f"{text}/state"}
        keys = {"targets": [TARGETS], "backends": [arguments.backend], "slice": "30s", "memory": "16GiB"}
        config = parse_config({**keys, **paths, "budget": {"cases": arguments.cases}})
        state, outcome = run_campaign(config, resume=False, say=lambda line: print(line, file=sys.stderr))
        with state.store:
            findings = [(finding.target, finding.oracle) for finding in state.store.findings()]
        jobs = {job.target.rpartition(":")[2]: job for job in state.jobs}
    print("| target | cases | slices lost | findings |\n|---|---|---|---|")
    for name, job in jobs.items():
        oracles = ", ".join(oracle for target, oracle in findings if target == name)
        print(f"| `{name}` | {job.cases} | {job.deaths} | {oracles or 'none'} |")
    held = Counter(findings) == Counter(DUE.items()) and all(job.cases >= arguments.cases // 8 for job in state.jobs)
    return int(not (held and outcome == "finished" and not any(job.deaths for job in state.jobs)))


if __name__ == "__main__":
    sys.exit(main())
