"""The formats that problems and solutions come in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.errors import UsageError

if TYPE_CHECKING:
    from fuzz.judge.formats.base import Problem
    from fuzz.judge.formats.solution import Solution

KERNELBENCH, GPUMODE, FLASHINFER = FORMATS = ("kernelbench", "gpumode", "flashinfer")
OPS, SCRIPT = WITHOUT_PROBLEM = ("ops", "script")
"""The format of modules that register implementations of operations, whose problems are samples of PyTorch's own, and
that of programs."""


def load_problem(name: str, path: Path, spec: Path | None = None) -> Problem:
    """The problem of a file or folder in a format, with its spec if it has one. Raises UsageError where it is none."""
    if name == KERNELBENCH and spec is not None:
        from fuzz.judge.formats.kernelbench_spec import SpecProblem

        return SpecProblem(path, spec)
    if name == KERNELBENCH:
        from fuzz.judge.formats.kernelbench import KernelBenchProblem

        return KernelBenchProblem(path)
    if name == GPUMODE:
        from fuzz.judge.formats.gpumode import GpuModeProblem

        return GpuModeProblem(path)
    if name == FLASHINFER:
        from fuzz.judge.formats.flashinfer import FlashInferProblem

        return FlashInferProblem(path)
    if name == OPS:
        from fuzz.judge.formats.ops import OpsProblem

        return OpsProblem(path)
    raise UsageError(f"unknown format {name!r}: there are {', '.join(FORMATS)}")


def load_solution(name: str, path: Path, problem: Path, sources: Path) -> Solution:
    """The solution of a file in a format. Raises what it raises.

    `problem` is where its types are, if it needs any, and `sources` where what it holds as text is written.
    """
    if name == KERNELBENCH:
        from fuzz.judge.formats.kernelbench_solution import KernelBenchSolution

        return KernelBenchSolution(path)
    if name == GPUMODE:
        from fuzz.judge.formats.gpumode import GpuModeSolution

        return GpuModeSolution(path, problem)
    if name == FLASHINFER:
        from fuzz.judge.formats.flashinfer import FlashInferSolution

        return FlashInferSolution(path, sources)
    if name == OPS:
        from fuzz.judge.formats.ops import OpsSolution

        return OpsSolution(path)
    raise UsageError(f"unknown format {name!r}: there are {', '.join(FORMATS)}")
