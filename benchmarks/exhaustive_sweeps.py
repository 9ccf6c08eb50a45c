"""All 2^32 values or pairs on a GPU: seconds of a sweep with compilation, and of the same one again without.

    python benchmarks/exhaustive_sweeps.py [gelu_bw float32] [gelu_bw bfloat16 pairs] ..
"""

from __future__ import annotations

import sys
import time

import torch

from fuzz.loader import load
from fuzz.sweep import Tally, planned
from fuzz.sweep.service import service
from fuzz.sweep.table import text_of

SWEEPS = ("gelu_bw float32", "silu float32", "gelu_bw bfloat16 pairs", "geglu bfloat16 pairs", "swiglu bfloat16 pairs")


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    for asked in sys.argv[1:] or SWEEPS:
        name, dtype, *rest = asked.split()
        plan = planned(load(name), name, dtype=dtype, backend="cuda", pairs="pairs" in rest)
        handle = service(plan)
        seconds = []
        for _ in range(3):
            began, total = time.monotonic(), Tally()
            for request in range(plan.requests):
                found = handle(request)
                assert isinstance(found, Tally)
                total.add(found)
            torch.cuda.synchronize()
            seconds.append(time.monotonic() - began)
        print(f"\n{asked}: " + ", ".join(f"{one:.2f} s" for one in seconds))
        print(text_of(plan, total), flush=True)


if __name__ == "__main__":
    main()
