"""Starts the two processes of a judgement, and ends them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.backends.base import Backend
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.processes.first_dims import EAGER_SECONDS, ELEMENTS, FIRST_SECONDS, OPERATIONS
from fuzz.judge.processes.isolated_worker import ProblemProcess, start_solution
from fuzz.judge.processes.requests import ProblemConfig, SolutionConfig
from fuzz.worker.deadline import Deadline
from fuzz.worker.worker import Worker


@contextmanager
def start_processes(
    options: JudgeOptions, backend: Backend, deadline: Deadline
) -> Iterator[tuple[ProblemProcess, Worker]]:
    """The process of the problem and that of the solution, which end with the block."""
    problem = ProblemProcess.start(
        ProblemConfig(
            options.format, options.problem.resolve(), backend.name, ELEMENTS[backend.is_accelerator],
            EAGER_SECONDS, OPERATIONS[backend.is_accelerator], options.spec_file,
        ),
        options.process_memory,
        deadline,
    )  # fmt: skip
    build_folder = Path(tempfile.mkdtemp(prefix="fuzz-judge-"))
    config = SolutionConfig(
        options.format, options.solution.resolve(), backend.name, build_folder, options.problem.resolve(),
        options.secret_files,
    )  # fmt: skip
    solution = start_solution(config, options.process_memory, FIRST_SECONDS, deadline)
    solution.start()
    try:
        yield problem, solution
    finally:
        problem.worker.stop()
        solution.stop()
        shutil.rmtree(build_folder, ignore_errors=True)
