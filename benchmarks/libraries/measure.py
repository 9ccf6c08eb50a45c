"""Runs operations of one library in this process and says what happened, one JSON line for each.

python -m benchmarks.libraries.measure LIBRARY FOLDER [--part K/N] [--only NAME]... [--dtypes float32,...]
    [--repeat N] [--limit S]

Outputs of float32 calls of the first shape are kept in FOLDER, for comparison with the other way of running kernels:
TRITON_INTERPRET=1 makes this process run Triton's interpreter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from benchmarks.libraries.operations import SHAPES, Check, Draw, Operation
from fuzz.backends import cpu

LIBRARIES = {"liger": ("liger", "liger_losses"), "fla": ("fla_modules", "fla_attention")}
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Tensors = list[torch.Tensor]


def operations(library: str) -> list[Operation]:
    """Imports the library: it asks for a device while it does."""
    registries = [importlib.import_module(f"benchmarks.libraries.{module}").operation for module in LIBRARIES[library]]
    return [one for registry in dict.fromkeys(registries) for one in registry.operations]


def flat(value: Any) -> Tensors:
    """The floating outputs of a call, in order."""
    values = value if isinstance(value, tuple | list) else [value]
    return [one for one in values if isinstance(one, torch.Tensor) and one.is_floating_point()]


def results(function: Callable[..., Any], inputs: tuple[Any, ...], backward: bool, cotangents: Tensors) -> Tensors:
    """Outputs, and the gradient of every input that wants one. Draws what `cotangents` lacks."""
    outputs = flat(function(*inputs))
    kept = [output.detach().clone() for output in outputs]
    leaves = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
    if not backward or not leaves:
        return kept
    generator = torch.Generator().manual_seed(1)
    for output in kept[len(cotangents) :]:
        drawn = torch.randn(output.shape, generator=generator).to(output.dtype)
        cotangents.append(drawn if output.dim() else torch.ones_like(output))
    # Some kernels write over the cotangent.
    given = [grad.to(out.dtype, copy=True) for out, grad in zip(outputs, cotangents, strict=True) if out.requires_grad]
    wanted = [out for out in outputs if out.requires_grad]
    gradients = torch.autograd.grad(wanted, leaves, given, allow_unused=True)
    return kept + [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, gradients, strict=True)]


def disagreement(found: Tensors, expected: Tensors) -> float:
    """The largest difference over outputs and gradients, each relative to its expected largest magnitude."""
    worst = 0.0
    for left, right in zip(found, expected, strict=True):
        scale = right.double().abs().max().item() if right.numel() else 0.0
        gap = (left.double() - right.double().reshape(left.shape)).abs().max().item() if right.numel() else 0.0
        worst = max(worst, gap / (scale or 1.0)) if gap == gap else float("nan")
    return worst


def in_float64(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values; taken before a kernel writes over them."""
    return tuple(
        one.detach().double().requires_grad_(one.requires_grad)
        if isinstance(one, torch.Tensor) and one.is_floating_point()
        else one
        for one in inputs
    )


@dataclass
class Seen:
    """Kernels launched, and the seconds of each compilation."""

    kernels: set[str] = field(default_factory=set)
    compiled: list[float] = field(default_factory=list)

    def loaded(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        if not cache_hit:
            self.compiled.append(times.total / 1e6)

    def launched(self, metadata: Any) -> None:
        self.kernels.add(metadata.get()["name"])


@contextmanager
def watched() -> Iterator[Seen]:
    """What Triton compiles and launches inside."""
    seen, compilation, runtime = Seen(), triton.knobs.compilation, triton.knobs.runtime
    before, compilation.listener = compilation.listener, seen.loaded
    runtime.launch_enter_hook.add(seen.launched)
    try:
        yield seen
    finally:
        compilation.listener = before
        runtime.launch_enter_hook.remove(seen.launched)


def run(operation: Operation, dtype: torch.dtype, shape: int, folder: Path, repeat: int) -> dict[str, Any]:
    """One call forward and backward, compared with its reference, and timed again when it is warm."""
    found: dict[str, Any] = {"name": operation.name, "dtype": str(dtype)[6:], "shape": shape}
    with cpu.knobs.set(**operation.knobs), watched() as seen:
        started = time.perf_counter()
        try:
            check = operation.draw(Draw(dtype, shape))
            exact, cotangents = in_float64(check.inputs), []
            outputs = results(check.kernel, check.inputs, operation.backward, cotangents)
        except Exception as error:  # noqa: BLE001
            found["failed"] = reason(error)
            return found
        finally:
            found["seconds"] = time.perf_counter() - started
            found["kernels"] = sorted(seen.kernels)
            found["compiled"] = seen.compiled
    if check.reference is not None:
        found["error"] = disagreement(outputs, results(check.reference, exact, operation.backward, cotangents))
    if dtype == torch.float32 and shape == 0:
        torch.save(outputs, folder / f"{operation.name}.{'interpreted' if INTERPRETED else 'compiled'}.pt")
    if repeat:
        found["warm"] = warm(operation, check, cotangents, repeat)
    return found


@contextmanager
def limited(limit: float) -> Iterator[None]:
    """Raises TimeoutError inside a call of Python that takes more seconds."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {limit:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0 if limit == float("inf") else limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def processor_time() -> float:
    """Seconds of a processor that this process and the compilers that it started have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def reason(error: BaseException) -> str:
    """What went wrong at the bottom: Triton quotes the kernel around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[-300:]}"


def warm(operation: Operation, check: Check, cotangents: Tensors, repeat: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        results(check.kernel, check.inputs, operation.backward, cotangents)
        times.append(time.perf_counter() - started)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", action="append")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds for each call")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    with cpu.active():
        chosen = [one for one in operations(options.library) if one.name in (options.only or [one.name])]
        started, worked = time.perf_counter(), processor_time()
        for operation in chosen[part::parts]:
            for dtype in operation.dtypes:
                if str(dtype)[6:] not in options.dtypes.split(","):
                    continue
                for shape in SHAPES[: options.shapes]:
                    with limited(options.limit):
                        found = run(operation, dtype, shape, options.folder, options.repeat)
                    print(json.dumps(found), flush=True)
        print(json.dumps({"sweep": time.perf_counter() - started, "worked": processor_time() - worked}), flush=True)


if __name__ == "__main__":
    main()
