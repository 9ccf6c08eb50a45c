"""Judges what a command line names: one solution, or every solution of a folder, or a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fuzz.backends import check_name
from fuzz.errors import UsageError
from fuzz.judge.formats import FLASHINFER, GPUMODE, KERNELBENCH, OPS
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.ops.judge_ops import judge_operations
from fuzz.judge.processes.requests import SERVER_MODULE
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import Judgement
from fuzz.judge.script import judge_file
from fuzz.run.setup import choose_backend, start_worker_server
from fuzz.text import shell_quote


def judge_paths(
    format: str,
    problem: Path,
    solution: Path,
    backend: str,
    seconds: float,
    seed: int,
    announce: Callable[[str], object],
    spec: Path | None = None,
) -> Iterator[Judgement]:
    """The judgement of a solution, or of each in a folder of them. Raises UsageError for what is not there."""
    solutions = list_solutions(format, problem, solution)
    start_worker_server(SERVER_MODULE)
    name = choose_backend(backend)
    for path in solutions:
        if len(solutions) > 1:
            announce(f"judging {path}")
        judgement = judge(JudgeOptions(problem, path, format, name, seconds, seed, spec=spec))
        words = [*([] if format == KERNELBENCH else [format]), str(problem), str(path)]
        judgement.command = repeat_command(words, name, seconds, seed, spec)
        yield judgement


def judge_script(path: Path, backend: str) -> Iterator[Judgement]:
    """The judgement of a program with kernels."""
    check_file(path)
    start_worker_server()
    check_name(backend)
    judgement = judge_file(path)
    judgement.command = f"fuzz judge script {shell_quote(str(path))}"
    yield judgement


def judge_module(
    path: Path, backend: str, seconds: float, seed: int, announce: Callable[[str], object]
) -> Iterator[Judgement]:
    """The judgement of each operation that a module, or each file of a folder of BackendBench, implements."""
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    start_worker_server(SERVER_MODULE)
    name = choose_backend(backend)
    options = JudgeOptions(path, path, OPS, name, seconds, seed)
    for judgement in judge_operations(options, announce):
        judgement.command = repeat_command([OPS, judgement.solution], name, seconds, seed)
        yield judgement


def list_solutions(format: str, problem: Path, solution: Path) -> list[Path]:
    """The files to judge. Raises UsageError where there are none."""
    if format == GPUMODE:
        if not problem.is_dir():
            raise UsageError(f"there is no folder {problem}")
    else:
        check_file(problem)
    if solution.is_dir():
        ending = ".json" if format == FLASHINFER else ".py"
        found = sorted(path for path in solution.glob(f"*{ending}") if not path.name.startswith("_"))
        if not found:
            raise UsageError(f"there is no solution in {solution}: no file ends in {ending}")
        return found
    check_file(solution)
    return [solution]


def check_file(path: Path) -> None:
    """Raises UsageError where there is no such file."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")


def repeat_command(words: list[str], backend: str, seconds: float, seed: int, spec: Path | None = None) -> str:
    """The shell's command that repeats a judgement."""
    quoted = " ".join(map(shell_quote, words))
    given = f" --spec {shell_quote(str(spec))}" if spec is not None else ""
    return f"fuzz judge {quoted}{given} --backend {backend} --seconds {seconds:g} --seed {seed}"
