"""FlashInfer-Bench: a definition and solutions as JSON. A definition's reference is source text with a function run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fuzz.errors import UsageError, one_line
from fuzz.judge.formats.base import Problem, Tensors, name_outputs
from fuzz.judge.formats.solution import Solution, load_module
from fuzz.judge.problem.description import NotComparable, Setting, TensorSlot, Unsupported, UnsupportedHere
from fuzz.judge.processes.promotion import Promotion

LANGUAGES = ("python", "triton")
VARIABLE = 7
"""The size of an axis that a definition leaves open; workloads give others."""
SCALAR = 0.5


def read_json(path: Path, *fields: str) -> Mapping[str, Any]:
    """An object with these fields. Raises UsageError where the file holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict) or any(name not in value for name in fields):
            raise ValueError(f"an object with {', '.join(fields)} is due")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {one_line(error)}") from None
    return value


class FlashInferProblem(Problem):
    """A definition's file. Open axes are dims, constant ones stay."""

    def __init__(self, path: Path) -> None:
        definition = read_json(path, "name", "axes", "inputs", "outputs", "reference")
        self.name, self.definition = definition["name"], definition
        axes = definition["axes"]
        self.fixed_axes = {name: axis["value"] for name, axis in axes.items() if axis["type"] == "const"}
        self.constants = {name: VARIABLE for name, axis in axes.items() if axis["type"] == "var"}
        module = ModuleType("fuzz_judged_definition")
        exec(compile(definition["reference"], f"{path.name}:reference", "exec"), module.__dict__)
        self.run: Callable[..., Any] = module.__dict__["run"]

    def setting(self, dims: Mapping[str, int]) -> Setting:
        values = [TensorSlot(name) if spec["shape"] is not None else SCALAR for name, spec in self._inputs()]
        outputs = {
            name: (tuple(self._size(axis, dims) for axis in spec["shape"] or ()), spec["dtype"])
            for name, spec in self.definition["outputs"].items()
        }
        return Setting((outputs,), tuple(values))

    def _inputs(self) -> list[tuple[str, Mapping[str, Any]]]:
        return list(self.definition["inputs"].items())

    def _size(self, axis: str, dims: Mapping[str, int]) -> int:
        return int({**self.fixed_axes, **dims}[axis])

    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        torch.manual_seed(seed)
        found = {}
        for name, spec in self._inputs():
            if spec["shape"] is None:
                continue
            dtype = getattr(torch, spec["dtype"])
            if not dtype.is_floating_point:
                raise NotComparable(f"values of the input {name} ({spec['dtype']}) come from workloads only")
            found[name] = torch.randn([self._size(axis, dims) for axis in spec["shape"]]).to(dtype)
        return found, {}

    def compute(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Tensors:
        values = [tensors[name] if spec["shape"] is not None else SCALAR for name, spec in self._inputs()]
        if dtype is not torch.float64:
            return self._named(self.run(*values))
        with Promotion():
            return self._named(self.run(*values))

    def _named(self, value: Any) -> Tensors:
        return rename_outputs(name_outputs(value), list(self.definition["outputs"]))

    def own_rule(self, outputs: Tensors, expected: Tensors) -> bool:
        """A solution fails only where an element's absolute and relative errors both exceed 1e-2."""
        for name, one in expected.items():
            if outputs[name].shape != one.shape:
                return False
            error = (outputs[name].double() - one.double()).abs()
            if bool(((error > 1e-2) & (error > 1e-2 * one.double().abs())).any()):
                return False
        return True


def rename_outputs(found: Tensors, names: list[str]) -> Tensors:
    """Outputs that have no names of their own under those of the definition."""
    return found if set(found) == set(names) else dict(zip(names, found.values(), strict=True))


class FlashInferSolution(Solution):
    """A solution's file, in Python or Triton; its sources are written below a folder."""

    def __init__(self, path: Path, sources: Path) -> None:
        solution = read_json(path, "name", "spec", "sources")
        spec = solution["spec"]
        if spec["language"] not in LANGUAGES:
            raise UnsupportedHere(f"solutions in {spec['language']} cannot be run, only {' and '.join(LANGUAGES)}")
        sources.mkdir(parents=True, exist_ok=True)
        # Each process has its own.
        folder = Path(tempfile.mkdtemp(dir=sources)).resolve()
        for source in solution["sources"]:
            target = (folder / source["path"]).resolve()
            if not target.is_relative_to(folder):
                raise Unsupported(f"the source {source['path']} lies outside of its solution")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source["content"], encoding="utf-8")
        file, _, function = spec["entry_point"].partition("::")
        self.module = load_module(folder / file)
        self.run = getattr(self.module, function)
        self.passes_outputs = spec.get("destination_passing_style", True)

    def build(self, setting: Setting) -> Callable[..., Any]:
        (outputs,) = setting.construct

        def call(*values: Any) -> Any:
            if not self.passes_outputs:
                return rename_outputs(name_outputs(self.run(*values)), list(outputs))
            device = next((value.device for value in values if isinstance(value, torch.Tensor)), None)
            given = {
                name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
                for name, (shape, dtype) in outputs.items()
            }
            self.run(*values, *given.values())
            return given

        return call
