"""Defines what is judged, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fuzz.judge.formats import KERNELBENCH
from fuzz.judge.formats.spec import find_spec
from fuzz.worker.system import total_memory


@dataclass(frozen=True)
class JudgeOptions:
    """What to judge, and how long: `seconds` for cases after the first ones. `memory` limits each process, in bytes.

    `spec` is a file, or a folder in which a file has the problem's name, that gives a problem's inputs; without it the
    one beside the problem is taken.
    """

    problem: Path
    solution: Path
    format: str = KERNELBENCH
    backend: str = "auto"
    seconds: float = 60.0
    seed: int = 0
    memory: int = 0
    spec: Path | None = None

    @property
    def process_memory(self) -> int:
        return self.memory or max(total_memory() // 4, 1 << 30)

    @property
    def spec_file(self) -> Path | None:
        """The file that gives a problem's inputs, if there is one."""
        return find_spec(self.problem.resolve(), self.spec) if self.format == KERNELBENCH else None

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """What the solution has no business reading."""
        problem = self.problem.resolve()
        if problem.is_dir():
            return (problem / "reference.py",)
        return () if problem == self.solution.resolve() else (problem,)
