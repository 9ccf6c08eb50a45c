"""Waves: how many cases a second one process examines, in waves, one at a time, and by a hand-written loop.

    python -m benchmarks.waves [--target layernorm_bw] [--backend cpu|cuda] [--replicas 512] [--seconds 20]

All three in one run, on the same plans, each of which counts by its replicas: `small` ones have tensors of up to 256
elements, `mixed` ones of up to 2**14. The waves and the cases one at a time have all default oracles, at the shares
that are printed; the loop has none, and compares with a float64 reference by torch.allclose. Several processes take
turns on a GPU; with --mps they share it by NVIDIA's Multi-Process Service, started for them alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fuzz.backends.base import ReplicaLimits
from fuzz.backends.launch_trace import trace
from fuzz.model.case import Case
from fuzz.model.oracle_specs import sample_oracles
from fuzz.model.recipes.torch_values import tensor
from fuzz.oracles import examine
from fuzz.oracles.comparison import screening
from fuzz.oracles.examine import make_handler, set_up_process
from fuzz.oracles.execution import case_runner
from fuzz.search.engines.random import choices, make_drawer
from fuzz.target.loader import load
from fuzz.worker.protocol import ReplicaGroup, WorkerConfig

FIFTHS = 5
"""Stretches of each measurement, of which the median and the range are told."""
SHAPES = {"small": ((1, 1 << 8),), "mixed": ((60, 1 << 8), (30, 1 << 11), (10, 1 << 14))}
PARTS = {
    "launch": (trace.LaunchTrace, "replay"),
    "generation": (case_runner, "replica_values"),
    "reference": (screening, "evaluate_stacked_reference"),
    "comparison": (screening, "compare_elements"),
    "doubt": (screening, "suspect_rows"),
    "oracles": (examine, "check_sampled"),
}
"""What of a wave is timed apart, each with what it calls; the launches of the oracles' reruns count as launch."""


def replica_groups(name: str, shapes: str, limits: ReplicaLimits) -> Iterator[ReplicaGroup]:
    """Plans of one call without huge layouts, each with its replicas."""
    draw, index = make_drawer(load(name), SHAPES[shapes]), 0
    for plan in filter(None, (draw(choices(f"{shapes}/{number}")) for number in itertools.count())):
        if len(plan.calls) == 1 and not any(value.layout.reach for value in plan.last.tensors.values()):
            count = max(1, min(limits.replicas, limits.elements // max(plan.elements(), 1)))
            yield ReplicaGroup(plan, tuple(sample_oracles(index + place, count) for place in range(count)), index)
            index += count


def timed(
    step: Callable[[Any], object], items: Sequence[Sequence[Any]], runs: Sequence[int], cases: int, seconds: float
) -> list[float]:
    """Cases a second in each fifth of the time, ascending: of all plans, whose cases take so many `runs` of a step.

    Each round runs one of a plan's items. Small plans have most replicas: were runs only counted, the three ways would
    be compared on different mixes of cases.
    """
    rates, rounds = [], zip(*map(itertools.cycle, items), strict=True)
    for _ in range(FIFTHS):
        start, spent, count = time.perf_counter(), [0.0] * len(items), 0
        while not count or time.perf_counter() - start < seconds / FIFTHS:
            for place, item in enumerate(next(rounds)):
                began = time.perf_counter()
                step(item)
                spent[place] += time.perf_counter() - began
            count += 1
        rates.append(count * cases / sum(map(operator.mul, runs, spent)))
    return [round(rate) for rate in sorted(rates)]


def spread(what: str, rates: list[float]) -> dict[str, Any]:
    """The median of sorted rates, and their range."""
    return {what: rates[len(rates) // 2], f"{what}, range": [rates[0], rates[-1]]}


def naive(name: str, backend: str) -> Callable[[Case], None]:
    """One case as a person would write it: values, launch, float64 reference, allclose; no oracle, no guards."""
    target, launcher, made = set_up_process(WorkerConfig(name, None, backend))
    assert target.reference is not None

    def step(case: Case) -> None:
        call = case.last
        inputs = {key: tensor(v.values, call.shape(key), v.dtype, made.device) for key, v in call.arguments.items()}
        with made.uninstrumented():
            outputs = launcher(**inputs, **call.options)
        exact = {key: value.double() for key, value in inputs.items()}
        for key, value in target.reference(**exact, **call.options).items():  # type: ignore[misc]
            torch.allclose(outputs[key].double(), value, rtol=1e-2, atol=1e-2, equal_nan=True)

    return step


def shares(handle: Callable[[Any], Any], items: list[ReplicaGroup], device: str) -> dict[str, float]:
    """The share of time in each part, the device waited for at the end of each."""
    spent: defaultdict[str, float] = defaultdict(float)
    inner: list[float] = []

    def wrapped(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            start = time.perf_counter()
            inner.append(0.0)
            try:
                return function(*given, **more)
            finally:
                if device == "cuda":
                    torch.cuda.synchronize()
                whole = time.perf_counter() - start
                spent[part] += whole - inner.pop()
                if inner:
                    inner[-1] += whole

        return call

    originals = {part: (owner, name, getattr(owner, name)) for part, (owner, name) in PARTS.items()}
    for part, (owner, name, function) in originals.items():
        setattr(owner, name, wrapped(part, function))
    start = time.perf_counter()
    try:
        for item in items:
            handle(item)
    finally:
        for owner, name, function in originals.values():
            setattr(owner, name, function)
    whole = time.perf_counter() - start
    spent["the rest"] = whole - sum(spent.values())
    return {part: round(seconds / whole, 3) for part, seconds in spent.items()}


def measure(name: str, backend: str, limits: ReplicaLimits, plans: int, seconds: float, shapes: str) -> dict[str, Any]:
    handle = make_handler(WorkerConfig(name, None, backend))
    warm = list(itertools.islice(replica_groups(name, shapes, limits), plans))
    examined: Counter[str] = Counter()
    findings = 0
    for group in warm:
        for report in handle(group):  # type: ignore[union-attr]
            examined.update(report.examined)
            findings += bool(report.findings)
    replicas = [len(group.sampled) for group in warm]
    cases = sum(replicas)
    by_hand = naive(name, backend)
    requests = [group.requests()[:: max(len(group.sampled) // 8, 1)] for group in warm]
    by_plan = [[request.case for request in some] for some in requests]
    for group in warm:
        by_hand(group.plan)

    start = time.perf_counter()
    drawn = list(itertools.islice(replica_groups(name, shapes, limits), 60))
    engine_seconds = (time.perf_counter() - start) / sum(len(group.sampled) for group in drawn)
    found = {
        "target": name, "backend": backend, "shapes": shapes, "replicas": round(cases / len(warm), 1),
        **spread("waves", timed(handle, [[group] for group in warm], [1] * len(warm), cases, seconds)),
        **spread("one at a time", timed(handle, requests, replicas, cases, seconds / 2)),
        **spread("hand-written loop", timed(by_hand, by_plan, replicas, cases, seconds / 4)),
        "microseconds a case to draw plans": engine_seconds * 1e6,
        "share of time": shares(handle, warm, backend),
        "share of cases": {oracle: round(count / cases, 4) for oracle, count in examined.items()},
        "findings": findings,
    }  # fmt: skip
    return found


@contextmanager
def shared_gpu() -> Iterator[None]:
    """NVIDIA's Multi-Process Service for what starts in here."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        os.environ |= dict.fromkeys(names, folder)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=True)
            for name in names:
                del os.environ[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="layernorm_bw")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--replicas", type=int, default=512, help="of a plan, at most")
    parser.add_argument("--elements", type=int, default=1 << 17, help="of all replicas of a plan, at most")
    parser.add_argument("--plans", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--shapes", default="", choices=("", *SHAPES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--mps", action="store_true", help="the processes' kernels run side by side on the GPU")
    given = parser.parse_args()
    if given.processes > 1:
        command = [sys.executable, "-m", "benchmarks.waves", "--target", given.target, "--backend", given.backend]
        command += ["--replicas", str(given.replicas), "--seconds", str(given.seconds), "--shapes", given.shapes]
        command += ["--elements", str(given.elements), "--plans", str(given.plans)]
        with shared_gpu() if given.mps else nullcontext():
            started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(given.processes)]
            rows = [json.loads(line) for one in started for line in one.communicate()[0].splitlines()]
        for shapes in dict.fromkeys(row["shapes"] for row in rows):
            mine = [row["waves"] for row in rows if row["shapes"] == shapes]
            print(f"{given.processes} processes, {shapes}: {sum(mine):.0f} cases/s in waves")
        return
    for shapes in [given.shapes] if given.shapes else SHAPES:
        limits = ReplicaLimits(given.replicas, given.elements)
        found = measure(given.target, given.backend, limits, given.plans, given.seconds, shapes)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
