"""GPU MODE's tasks: a folder with task.yml, reference.py (generate_input, ref_kernel, check_implementation)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from fuzz.corpus.codec.strict_yaml import LARGEST_FILE, TypedLoader, decode, parse
from fuzz.errors import UsageError, one_line
from fuzz.files import read_file
from fuzz.judge.formats.base import Problem, Tensors, name_outputs, take_slots
from fuzz.judge.formats.solution import Solution, load_module
from fuzz.judge.problem.description import Setting, Unsupported, Variant, fill_slots
from fuzz.judge.processes.promotion import Promotion

SUBMISSION = "@SUBMISSION@"
SEED = "seed"
REFERENCE = "reference"
NAMES = [f"data{index}" for index in range(64)]


def read_task(folder: Path) -> Mapping[str, Any]:
    """What task.yml says. Raises UsageError where it cannot be read."""
    try:
        task = parse(decode(read_file(folder / "task.yml", LARGEST_FILE + 1)), TypedLoader)
        if not isinstance(task, dict) or not task.get("tests") or "files" not in task:
            raise ValueError("it has no files or no tests")
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is no task of GPU MODE: {one_line(error)}") from None
    return task


class Uncached(SourceFileLoader):
    """Loads a module, and writes nothing beside it: that is somebody else's folder."""

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        pass


class TaskFinder(MetaPathFinder):
    """Finds modules by these names in these files, before Python looks for others."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        file = self.files.get(fullname)
        return spec_from_file_location(fullname, file, loader=Uncached(fullname, str(file))) if file else None


def link_files(folder: Path, task: Mapping[str, Any], *names: str) -> None:
    """Makes the modules that a task's files are importable; without names all but the submission."""
    found = {}
    for file in task["files"]:
        name, path = Path(str(file["name"])), (folder / file["source"]).resolve()
        wanted = file["source"] != SUBMISSION and (not names or file["name"] in names)
        if wanted and name.suffix == ".py" and path.is_file():
            found[name.stem] = path
    sys.meta_path.insert(0, TaskFinder(found))


class GpuModeProblem(Problem):
    """A task's folder. Raises UsageError where it is none."""

    # The functions that tasks check outputs with compare numbers, as the equal ones of two dtypes are.
    fixes_dtypes = False

    def __init__(self, path: Path) -> None:
        task = read_task(path)
        self.name = path.name
        self.spec: Mapping[str, Any] = task["tests"][0]
        self.constants = find_dims(self.spec)
        self.variants = tuple(other_dims(task, self.constants))
        link_files(path, task)
        self.reference = importlib.import_module(REFERENCE)
        self.calls: dict[tuple[tuple[str, int], ...], Any] = {}

    def setting(self, dims: Mapping[str, int]) -> Setting:
        self.make(dims, 0)
        return Setting(call=(self.calls[tuple(sorted(dims.items()))],))

    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        found: Tensors = {}
        with unwritten_as_nan():
            data = self.reference.generate_input(**{**self.spec, **dims, SEED: seed})
        self.calls[tuple(sorted(dims.items()))] = take_slots(data, list(NAMES), found)
        self.scratch = frozenset(name for name, value in found.items() if is_unwritten(value))
        return found, {}

    def compute(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Tensors:
        key = tuple(sorted(dims.items()))
        if key not in self.calls:
            self.make(dims, 0)
        data = fill_slots(self.calls[key], tensors)
        if dtype is not torch.float64:
            return name_outputs(self.reference.ref_kernel(data))
        with Promotion():
            return name_outputs(self.reference.ref_kernel(data))


def find_dims(spec: Any) -> dict[str, int]:
    """The whole numbers of a test or a benchmark, but for the seed."""
    return {key: value for key, value in spec.items() if type(value) is int and key != SEED}


def other_dims(task: Mapping[str, Any], own: Mapping[str, int]) -> Iterator[Variant]:
    """The dims of the other tests and of the benchmarks, each once."""
    stated = [*task["tests"], *(task.get("benchmarks") or ())]
    found = [find_dims(spec) for spec in stated if isinstance(spec, dict)]
    distinct = dict.fromkeys(tuple(sorted(dims.items())) for dims in found if dims != own and set(dims) == set(own))
    yield from map(Variant, distinct)


@contextmanager
def unwritten_as_nan() -> Iterator[None]:
    """Inside, memory that nobody writes holds NaN, or the largest whole number."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def is_unwritten(value: torch.Tensor) -> bool:
    """Whether a tensor that was made inside holds nothing: it is memory for an output."""
    if not value.numel() or value.dtype is torch.bool:
        return False
    empty = torch.isnan(value) if value.is_floating_point() else value == torch.iinfo(value.dtype).max
    return bool(empty.all())


class GpuModeSolution(Solution):
    """A submission with ``custom_kernel``. `task` is the folder of its task, whose types it imports."""

    def __init__(self, path: Path, task: Path) -> None:
        link_files(task, read_task(task), "task.py", "utils.py")
        self.module = load_module(path)
        if not hasattr(self.module, "custom_kernel"):
            raise Unsupported(f"{path.name} has no function custom_kernel")

    def build(self, setting: Setting) -> Callable[..., Any]:
        kernel: Callable[..., Any] = self.module.custom_kernel
        return kernel
