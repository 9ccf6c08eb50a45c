"""Random Triton kernels through the cpu backend against numpy.

    python -m benchmarks.random_kernels [--seconds 60] [--processes 2] [--seed 0] [--count N] [--one] [--coverage]

Kernels are those of the seeds from --seed on. --one prints the kernel of the first seed, what became of it, and its C.
--coverage prints in how many kernels each operation and dtype was. Exit code 1 if a kernel differs, is refused, or ends
the process.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from .build import compiled
from .check import SAME, check
from .run import Report, run
from .statements import kernel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 40)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    given = parser.parse_args()
    if given.one:
        return one(given.seed)
    start, total = time.monotonic(), Report()
    for report in run(given.seed, given.count, given.processes, given.seconds):
        total.add(report)
        for finding in report.findings:
            print(f"seed {finding.seed} {finding.outcome.what}: {finding.outcome.detail}\n{finding.source}", flush=True)
    if given.coverage:
        for name, times in total.operations.most_common():
            print(f"{times:8d} {name}")
    show(total, time.monotonic() - start, given)
    return int(set(total.outcomes) != {SAME})


def show(total: Report, seconds: float, given: argparse.Namespace) -> None:
    kernels = sum(total.outcomes.values())
    rate, alone = kernels / seconds / given.processes, kernels / max(total.processor, 1e-9)
    print(f"{kernels} kernels from seed {given.seed} on: {', '.join(f'{n} {w}' for w, n in total.outcomes.items())}")
    print(f"{seconds:.0f} s on {given.processes} processes: {rate:.1f} kernels/s each, {alone:.1f} a processor second")
    names = {name.split()[0] for name in total.operations}
    print(f"{len(names)} operations, {len(total.operations)} with their dtypes")


def one(seed: int) -> int:
    (item,) = compiled([kernel(seed)])
    print(item.c, item.ttir, item.source, sep="\n")
    outcome = check(item)
    print(outcome.what, outcome.detail)
    return int(outcome.what != SAME)


if __name__ == "__main__":
    sys.exit(main())
