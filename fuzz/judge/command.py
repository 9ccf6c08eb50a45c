"""Judges what a command line names: one solution, or every solution of a folder, or a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fuzz.backends import check_name
from fuzz.errors import UsageError
from fuzz.escaping import shell_quote
from fuzz.judge.formats import FLASHINFER, GPUMODE, KERNELBENCH, OPS, SCRIPT, WITHOUT_PROBLEM
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.ops.judge_ops import judge_operations
from fuzz.judge.processes.requests import SERVER_MODULE
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import Judgement
from fuzz.judge.script import judge_file
from fuzz.run.setup import choose_backend, start_worker_server


def judge_all(options: JudgeOptions, announce: Callable[[str], object]) -> Iterator[Judgement]:
    """The judgement of a solution, of each in a folder of them, of a program, or of each operation of a module.

    Each one has the command that repeats it. Raises UsageError for what is not there.
    """
    solutions = list_solutions(options)
    if options.format == SCRIPT:
        start_worker_server()
        check_name(options.backend)
    else:
        start_worker_server(SERVER_MODULE)
        options = replace(options, backend=choose_backend(options.backend))
    for path in solutions:
        if len(solutions) > 1:
            announce(f"judging {path}")
        for judgement in judge_solution(replace(options, solution=path), announce):
            judgement.command = repeat_command(options, judgement.solution)
            yield judgement


def judge_solution(options: JudgeOptions, announce: Callable[[str], object]) -> Iterator[Judgement]:
    """The judgement of one solution; of a module of operations that of each."""
    if options.format == SCRIPT:
        yield judge_file(options.solution, memory=options.memory)
    elif options.format == OPS:
        yield from judge_operations(options, announce)
    else:
        yield judge(options)


def list_solutions(options: JudgeOptions) -> list[Path]:
    """The files to judge. Raises UsageError where there are none."""
    solution = options.solution
    if options.format == OPS:
        if not solution.exists():
            raise UsageError(f"there is no file or folder {solution}")
        return [solution]
    if options.format == GPUMODE and not options.problem.is_dir():
        raise UsageError(f"there is no folder {options.problem}")
    if options.format != GPUMODE:
        check_file(options.problem)
    if solution.is_dir() and options.format != SCRIPT:
        ending = ".json" if options.format == FLASHINFER else ".py"
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


def repeat_command(options: JudgeOptions, solution: str) -> str:
    """The shell's command that repeats a judgement."""
    words = [*([] if options.format == KERNELBENCH else [options.format])]
    words += [*([] if options.format in WITHOUT_PROBLEM else [str(options.problem)]), solution]
    command = f"fuzz judge {' '.join(map(shell_quote, words))}"
    if options.format == SCRIPT:
        return command
    given = f" --spec {shell_quote(str(options.spec))}" if options.spec is not None else ""
    return f"{command}{given} --backend {options.backend} --seconds {options.seconds:g} --seed {options.seed}"
