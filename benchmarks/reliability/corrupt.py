"""A kernel that corrupts the CUDA context costs one worker: `python3 benchmarks/reliability/corrupt.py`, with a GPU.

A campaign over `contexts.py` with one host. The two kernels that corrupt the context must each become one finding under
`fault`, the wrong one beside them its own, the right one none; every lane must run its share, and no slice be lost.
The extra [service] must be installed; docs/reliability.md says how packages travel to a machine without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fuzz.campaign.config import parse_config
from fuzz.campaign.launch import launch

TARGETS = str(Path(__file__).with_name("contexts.py"))
DUE = {"strays": "fault", "asserts": "fault", "wrong": "accuracy"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400, help="of all four targets together")
    parser.add_argument("--backend", default="cuda")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-corrupt-") as text:
        places = {"corpus": f"{text}/corpus", "store": f"sqlite:///{text}/store", "folder": f"{text}/state"}
        keys = {"targets": [TARGETS], "backends": [asked.backend], "slice": "30s", "memory": "16GiB"}
        config = parse_config({**keys, **places, "budget": {"cases": asked.cases}})
        ledger, state = launch(config, resume=False, say=lambda line: print(line, file=sys.stderr))
        with ledger.store:
            found = [(one.target, one.oracle) for one in ledger.store.findings()]
        rows = {lane.target.rpartition(":")[2]: lane for lane in ledger.lanes}
    print("| target | cases | slices lost | findings |\n|---|---|---|---|")
    for name, lane in rows.items():
        filed = ", ".join(oracle for target, oracle in found if target == name)
        print(f"| `{name}` | {lane.cases} | {lane.deaths} | {filed or 'none'} |")
    held = Counter(found) == Counter(DUE.items()) and all(lane.cases >= asked.cases // 8 for lane in ledger.lanes)
    return int(not (held and state == "finished" and not any(lane.deaths for lane in ledger.lanes)))


if __name__ == "__main__":
    sys.exit(main())
