"""Published rules by which solutions are accepted, written anew from their descriptions, over the `cpu` backend.

KernelBench (`run_and_check_correctness` of src/kernelbench/eval.py): five random inputs at the problem's own dims,
forward only, the reference before the solution in one process and on the same tensors, then `torch.allclose` with
atol = rtol = 1e-2, as its first versions did in any dtype, or 1e-4 in float32 and 1e-2 in 16 bits, as it does now.

BackendBench (BackendBench/eval.py, suite/opinfo.py): samples of small tensors such as OpInfo makes, and real dims,
forward only, the reference before the solution in one process, then `torch.testing.assert_close` with 1e-2 for both.

gpuemu (the drivers and `meta.json` files of gpuemu-corpus): eight cases with dims drawn from small lists, values
uniform between -10 and 10, a reference in float64 in another process, an absolute tolerance for each operation, and no
NaN or infinity in a result.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import torch

from fuzz.backends import cpu
from fuzz.judge.formats.free_dims import find_constants, rewrite_constants
from fuzz.judge.formats.solution import load_module

Dims = Mapping[str, int]
Rule = Callable[[Path, Path], str]
"""(problem, solution) -> why the solution is not accepted, empty where it is."""
SECONDS = 120.0
"""Seconds that a rule may take with one solution."""
TRIALS, SEED = 5, 42
SAMPLES, SAMPLE_SIZES = 8, (3, 5, 10, 20)
CASES = 8
ROWS, LAST, NORM_LAST = (1, 2, 8), (1, 3, 256, 1025), (2, 3, 256, 1025)
GPUEMU: Mapping[str, tuple[Mapping[str, tuple[int, ...]], float]] = {
    "softmax": ({"batch": ROWS, "features": LAST}, 1e-5),
    "layer_norm": ({"batch": ROWS, "features": NORM_LAST}, 1e-4),
    "matmul": ({"M": (1, 2, 7, 128), "K": (1, 3, 16, 127, 256), "N": (1, 2, 15, 64)}, 5e-2),
    "linear_gelu": ({"batch": (1, 2, 7, 128), "features": (1, 3, 16, 127, 256), "outputs": (1, 2, 15, 64)}, 5e-2),
    "rms_norm_half": ({"batch": ROWS, "features": NORM_LAST}, 5e-2),
    "cross_entropy": ({"batch": ROWS, "classes": LAST}, 1e-4),
    "mean": ({"batch": ROWS, "length": (1, 7, 128), "features": LAST}, 1e-4),
    "attention": ({"heads": ROWS, "length": (1, 3, 16, 256), "width": (8, 16, 64)}, 1e-3),
    "cumsum": ({"batch": ROWS, "length": LAST}, 1e-4),
    "swiglu": ({"batch": ROWS, "hidden": LAST}, 1e-4),
}
"""The sizes of each dim and the tolerance: those of the same or the nearest operation of gpuemu's corpus."""


@dataclass(frozen=True)
class Instance:
    """A problem at certain dims."""

    names: Mapping[str, Any]

    @classmethod
    def at(cls, problem: Path, dims: Dims) -> Instance:
        names: dict[str, Any] = {}
        exec(compile(rewrite_constants(problem.read_text(encoding="utf-8"), dims), str(problem), "exec"), names)
        return cls(names)

    def build(self, module: Callable[..., Any], seed: int) -> Any:
        """The problem's or a solution's module, with the weights that this seed gives."""
        torch.manual_seed(seed)
        return module(*self.names["get_init_inputs"]())

    def inputs(self, seed: int, largest: float | None = None) -> list[torch.Tensor]:
        """What the problem makes; with `largest` floating values are uniform between it and its negative."""
        torch.manual_seed(seed)
        made = self.names["get_inputs"]()
        if largest is None:
            return made
        return [(torch.rand(x.shape) * 2 - 1).mul(largest).to(x.dtype) if x.is_floating_point() else x for x in made]


def kernelbench(problem: Path, solution: Path, tolerance: float | None = None) -> str:
    """KernelBench's rule; without a `tolerance` that of its newest version."""
    instance = Instance.at(problem, {})
    model = instance.build(instance.names["Model"], SEED)
    new = instance.build(load_module(solution).ModelNew, SEED)
    for trial in range(TRIALS):
        inputs = instance.inputs(SEED + trial)
        output = model(*inputs)
        output_new = new(*inputs)
        if output.shape != output_new.shape:
            return "another shape"
        limit = tolerance or (1e-4 if output.dtype is torch.float32 else 1e-2)
        if not torch.allclose(output, output_new, atol=limit, rtol=limit):
            return f"trial {trial} differs"
    return ""


def kernelbench_first(problem: Path, solution: Path) -> str:
    """The rule of KernelBench's first versions."""
    return kernelbench(problem, solution, 1e-2)


def backendbench(problem: Path, solution: Path) -> str:
    """BackendBench's rule: own dims last."""
    new_module, random = load_module(solution).ModelNew, Random(SEED)
    names = find_constants(problem.read_text(encoding="utf-8"))
    samples: list[Dims] = [{name: random.choice(SAMPLE_SIZES) for name in names} for _ in range(SAMPLES)]
    for number, dims in enumerate([*samples, {}]):
        instance = Instance.at(problem, dims)
        model = instance.build(instance.names["Model"], SEED)
        inputs = instance.inputs(SEED + number, 9.0 if dims else None)
        expected = model(*inputs)
        try:
            found = instance.build(new_module, SEED)(*inputs)
            torch.testing.assert_close(expected, found, equal_nan=True, atol=1e-2, rtol=1e-2)
        except Exception as error:
            return f"{dict(dims) or 'own dims'}: {type(error).__name__}"
    return ""


def draw_gpuemu_dims(problem: Path) -> Iterator[Dims]:
    random = Random(SEED)
    for _ in range(CASES):
        yield {name: random.choice(sizes) for name, sizes in GPUEMU[problem.stem][0].items()}


def run_gpuemu_cases(problem: Path, solution: Path) -> list[Any]:
    """What a solution returns for each case, as arrays."""
    new_module = load_module(solution).ModelNew
    found = []
    for number, dims in enumerate(draw_gpuemu_dims(problem)):
        instance = Instance.at(problem, dims)
        found.append(instance.build(new_module, SEED)(*instance.inputs(SEED + number, 10.0)).detach().numpy())
    return found


def judge_gpuemu_outputs(problem: Path, outputs: list[Any]) -> str:
    """Why outputs are not accepted, beside a reference in float64."""
    for number, (dims, output) in enumerate(zip(draw_gpuemu_dims(problem), outputs, strict=True)):
        instance = Instance.at(problem, dims)
        inputs = [x.double() if x.is_floating_point() else x for x in instance.inputs(SEED + number, 10.0)]
        with torch.no_grad():
            expected = instance.build(instance.names["Model"], SEED).double()(*inputs).double()
        found = torch.from_numpy(output).double()
        if found.shape != expected.shape:
            return f"{dict(dims)}: another shape"
        if not found.isfinite().all():
            return f"{dict(dims)}: NaN or an infinity"
        if not bool(((found - expected).abs() <= GPUEMU[problem.stem][1]).all()):
            return f"{dict(dims)}: beyond the tolerance"
    return ""


RULES = {
    "KernelBench, 1e-2": kernelbench_first, "KernelBench, 1e-4": kernelbench, "BackendBench": backendbench,
    "gpuemu": run_gpuemu_cases,
}  # fmt: skip


def apply_rule(name: str, problem: Path, solution: Path) -> tuple[str, float]:
    """(why it is not accepted, seconds). The solution runs in a process of its own, forked from this one."""
    start = time.monotonic()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=answer, args=(theirs, RULES[name], problem, solution))
    process.start()
    theirs.close()
    try:
        answered: Any = ours.recv() if ours.poll(SECONDS) else "it takes too long"
    except EOFError:
        answered = "its process ended"
    process.kill()
    process.join()
    reason = judge_gpuemu_outputs(problem, answered) if isinstance(answered, list) else answered
    return reason, time.monotonic() - start


def answer(pipe: Connection, rule: Callable[[Path, Path], Any], problem: Path, solution: Path) -> None:
    """Runs in the process of a solution. Of threads that its parent has started none is here."""
    torch.set_num_threads(1)
    try:
        with cpu.active(), torch.no_grad():
            pipe.send(rule(problem, solution))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:200])
