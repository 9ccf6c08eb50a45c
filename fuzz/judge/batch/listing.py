"""Lists the solutions of a folder with the problem of each, which its name, its folder or its text says."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuzz.errors import UsageError
from fuzz.judge.batch.task import read_checked
from fuzz.judge.formats import FLASHINFER, GPUMODE, WITHOUT_PROBLEM

SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)(?:_|$)")
"""How KernelBench names what a model has written for problem 23 of level 1, which it keeps as level1/23_Softmax.py."""
SUFFIX = re.compile(r"(?<!^)(?=\.|__|_\d+$)")
"""A solution's name is its problem's, which a dot, two underlines or a number may follow; names may have these too."""


@dataclass(frozen=True)
class Listing:
    """(problem, solution) of each solution, and why the others have none, by their path."""

    pairs: tuple[tuple[str, str], ...]
    left_out: Mapping[str, str]


def list_folder(format: str, folder: Path, problems: Path | None) -> Listing:
    """The solutions below a folder. UsageError where there are none, or the folders are not those that are needed."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    solutions = list(list_files(folder, ".json" if format == FLASHINFER else ".py"))
    if not solutions:
        raise UsageError(f"there is no solution in {folder}")
    if format in WITHOUT_PROBLEM:
        return Listing(tuple(("", str(path)) for path in solutions), {})
    if problems is None:
        raise UsageError(f"--batch {folder} needs --problems, the folder with the problems of its solutions")
    if not problems.is_dir():
        raise UsageError(f"there is no folder {problems}")
    return match(format, folder, solutions, list_problems(format, problems))


def list_files(folder: Path, ending: str) -> Iterator[Path]:
    """The files below a folder with this ending, without those whose name begins with an underline or a dot."""
    for path in sorted(folder.rglob(f"*{ending}")):
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield path


def list_problems(format: str, folder: Path) -> Mapping[str, list[Path]]:
    """The problems below a folder by name: a file's without its ending, a task's folder, a definition's own name."""
    found = defaultdict(list)
    if format == GPUMODE:
        for path in sorted(folder.rglob("task.yml")):
            found[path.parent.name].append(path.parent)
    for path in list_files(folder, ".json" if format == FLASHINFER else ".py") if format != GPUMODE else ():
        found[read_name(path, "name") if format == FLASHINFER else path.stem].append(path)
    if not found:
        raise UsageError(f"there is no problem in {folder}")
    return found


def match(format: str, folder: Path, solutions: list[Path], problems: Mapping[str, list[Path]]) -> Listing:
    """Gives each solution its problem."""
    pairs, left_out = [], {}
    for solution in solutions:
        names = [read_name(solution, "definition")] if format == FLASHINFER else possible_names(folder, solution)
        found = next((problems[name] for name in names if name in problems), None) or find_numbered(solution, problems)
        if len(found) == 1:
            pairs.append((str(found[0]), str(solution)))
        else:
            left_out[str(solution)] = "several problems have its name" if found else "no problem has its name"
    if not pairs:
        raise UsageError(f"no solution in {folder} is named as a problem is: {next(iter(left_out))} is not")
    return Listing(tuple(pairs), left_out)


def possible_names(folder: Path, solution: Path) -> list[str]:
    """The names that its problem may have: of its file, less and less of it, and of the folders that it lies in."""
    shorter = [solution.stem[: found.start()] for found in SUFFIX.finditer(solution.stem)]
    return [solution.stem, *reversed(shorter), *reversed(solution.relative_to(folder).parts[:-1])]


def find_numbered(solution: Path, problems: Mapping[str, list[Path]]) -> list[Path]:
    """The problems that have the level and number of a sample of KernelBench."""
    sample = SAMPLE.match(solution.stem)
    if sample is None:
        return []
    level, number = f"level{sample[1]}", f"{sample[2]}_"
    every = [path for paths in problems.values() for path in paths]
    return [path for path in every if path.parent.name == level and path.name.startswith(number)]


def read_name(path: Path, field: str) -> str:
    """A field of a file in JSON; empty where it has none."""
    try:
        value = json.loads(read_checked(path))
    except ValueError:
        return ""
    return str(value.get(field, "")) if isinstance(value, dict) else ""
