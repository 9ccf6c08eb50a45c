"""The `cpu` backend against Triton's interpreter in one run: a layer-norm backward of 8 x 64, warm; and compile times.

    python benchmarks/interpreter.py

Each side runs in a process of its own, one after the other, one thread. Prints medians, their ratio, and for the two
built-in targets the seconds of a new specialisation and of one that is cached on disk, in a new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 8, 64


@triton.jit
def layernorm_bw_row(dx, dy, x, weight, mean, rstd, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < n
    value = tl.load(x + row * n + columns, mask=mask, other=0.0)
    grad = tl.load(dy + row * n + columns, mask=mask, other=0.0)
    wdy = tl.where(mask, tl.load(weight + columns, mask=mask, other=0.0) * grad, 0.0)
    scale = tl.load(rstd + row)
    xhat = tl.where(mask, (value - tl.load(mean + row)) * scale, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx + row * n + columns, (wdy - (xhat * c1 + c2)) * scale, mask=mask)


def warm_launch(repeats: int) -> float:
    """Median seconds of a warm launch on this process's way of running kernels."""
    x, dy, weight = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)
    mean, rstd, dx = x.mean(1), x.var(1).rsqrt(), torch.empty_like(x)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        layernorm_bw_row[(ROWS,)](dx, dy, x, weight, mean, rstd, COLUMNS, BLOCK=COLUMNS)
        times.append(time.perf_counter() - started)
    return median(times[3:])


def first_launches() -> list[float]:
    """Seconds of the first launch of each built-in target's kernels in this process, imports excluded."""
    import fuzz.oracles.execution.preload  # noqa: F401
    from fuzz.backends import cpu
    from fuzz.target.loader import load

    cpu.activate()
    cpu.version()
    times = []
    arguments = {
        "layernorm_bw": dict(dy=torch.randn(8, 64), x=torch.randn(8, 64), weight=torch.randn(64), eps=1e-5),
        "gelu_bw": dict(dy=torch.randn(64), x=torch.randn(64)),
    }
    layernorm_bw_row.run  # noqa: B018
    targets = {name: load(name) for name in arguments}
    for name, given in arguments.items():
        kernels = 2 if name == "layernorm_bw" else 1
        started = time.perf_counter()
        targets[name](**given)
        times.append((time.perf_counter() - started) / kernels)
    return times


def child(what: str, **environment: str) -> object:
    """What a new process of this file measures."""
    command = [sys.executable, __file__, what]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(what: str) -> object:
    torch.set_num_threads(1)
    if what == "interpreter":
        return warm_launch(23)
    if what == "first":
        return first_launches()
    from fuzz.backends import cpu

    with cpu.active(), cpu.knobs.set(compiler="optimising"):
        return warm_launch(2003)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    ratios = []
    for _ in range(3):
        slow, fast = child("interpreter", TRITON_INTERPRET="1"), child("compiled")
        assert isinstance(slow, float) and isinstance(fast, float)
        ratios.append(slow / fast)
        print(f"{ROWS} x {COLUMNS}: interpreter {slow * 1e6:.0f} us, cpu {fast * 1e6:.1f} us, ratio {slow / fast:.0f}")
    print(f"median ratio {median(ratios):.0f}")
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            fresh, cached = (child("first", TRITON_CACHE_DIR=cache) for _ in range(2))
        assert isinstance(fresh, list) and isinstance(cached, list)
        print(f"specialisation, seconds: new {median(fresh):.3f} {fresh}, cached {median(cached):.4f} {cached}")


if __name__ == "__main__":
    main()
