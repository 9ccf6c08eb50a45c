"""KernelBench and its relatives: a module ``Model`` with ``get_inputs`` and ``get_init_inputs``.

MultiKernelBench's ``get_input_groups`` gives several lists of inputs, of which the first is taken.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fuzz.backends.triton_host.generators import seed_generators
from fuzz.errors import UsageError, one_line
from fuzz.judge.formats.base import Problem, Tensors, name_outputs, take_slots
from fuzz.judge.formats.free_dims import find_constants, rewrite_constants
from fuzz.judge.problem.description import Setting, fill_slots
from fuzz.judge.processes.promotion import Promotion

MODULE = "fuzz_judged_problem"


@dataclass
class Instance:
    """A problem at certain dims: its module's names, the arguments of a call with slots, its ``Model`` by dtype."""

    names: dict[str, Any]
    call: list[Any] = field(default_factory=list)
    slots: tuple[str, ...] = ()
    models: dict[tuple[torch.dtype, torch.device], torch.nn.Module] = field(default_factory=dict)

    def model(self, dtype: torch.dtype) -> torch.nn.Module:
        """The problem's module with weights of its own, made while new tensors have that dtype."""
        key = dtype, torch.get_default_device()
        if key not in self.models:
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                seed_generators(0)
                self.models[key] = self.names["Model"](*self.init_inputs()).to(dtype)
            finally:
                torch.set_default_dtype(before)
        return self.models[key]

    def init_inputs(self) -> list[Any]:
        return list(self.names["get_init_inputs"]()) if "get_init_inputs" in self.names else []

    def inputs(self) -> list[Any]:
        if "get_inputs" in self.names:
            return list(self.names["get_inputs"]())
        return list(next(iter(self.names["get_input_groups"]())))


class KernelBenchProblem(Problem):
    """A problem's file. Raises UsageError where it is none."""

    needs = frozenset({"get_inputs", "get_input_groups"})
    """What a file has one of, beside its class."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        try:
            self.source = path.read_text(encoding="utf-8")
            self.constants = find_constants(self.source)
        except (OSError, UnicodeDecodeError, SyntaxError) as error:
            raise UsageError(f"cannot read the problem {path}: {one_line(error)}") from None
        defined = {
            node.name for node in ast.parse(self.source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        if not self.needs & defined or "Model" not in defined:
            raise UsageError(f"{path} is no KernelBench problem: it has no class Model with get_inputs()")
        self._instances: dict[tuple[tuple[str, int], ...], Instance] = {}

    def instance(self, dims: Mapping[str, int]) -> Instance:
        """The problem at these dims; that of the last few is kept."""
        key = tuple(sorted(dims.items()))
        if key not in self._instances:
            if len(self._instances) >= 4:
                del self._instances[next(iter(self._instances))]
            instance = Instance(self.execute(dims))
            found = self._fill(instance)
            instance.slots = tuple(found)
            self._instances[key] = instance
        return self._instances[key]

    def execute(self, dims: Mapping[str, int]) -> dict[str, Any]:
        """The names of the problem's module at these dims."""
        module = ModuleType(MODULE)
        module.__file__ = str(self.path)
        sys.modules[MODULE] = module
        exec(compile(rewrite_constants(self.source, dims), str(self.path), "exec"), module.__dict__)
        return module.__dict__

    def setting(self, dims: Mapping[str, int]) -> Setting:
        instance = self.instance(dims)
        return Setting(tuple(instance.init_inputs()), tuple(instance.call))

    def _fill(self, instance: Instance) -> Tensors:
        """Makes the arguments of a call: the tensors of its slots."""
        parameters = list(inspect.signature(instance.names["Model"].forward).parameters.values())[1:]
        names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        found: Tensors = {}
        values = instance.inputs()
        names += [f"x{index}" for index in range(len(names), len(values))]
        instance.call = [take_slots(value, [name], found) for name, value in zip(names, values, strict=False)]
        return found

    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        instance = self.instance(dims)
        seed_generators(seed)
        arguments = self._fill(instance)
        seed_generators(seed)
        model = instance.names["Model"](*instance.init_inputs())
        buffers = dict(model.named_buffers())
        state = {**dict(model.named_parameters()), **buffers}
        self.fixed = frozenset(buffers)
        return arguments, {name: value.detach() for name, value in state.items() if value.is_floating_point()}

    def prepare(self, dims: Mapping[str, int]) -> None:
        self.instance(dims).model(torch.float64)

    def compute(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Tensors:
        instance = self.instance(dims)
        model = instance.model(dtype)
        state = {name: value for name, value in tensors.items() if name not in instance.slots}
        inputs = fill_slots(tuple(instance.call), tensors)
        if dtype is not torch.float64:
            return name_outputs(torch.func.functional_call(model, state, inputs))
        with Promotion():
            return name_outputs(torch.func.functional_call(model, state, inputs))
