"""Implementations of PyTorch's operations: one sample of an operation is a problem, the module a solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from fuzz.judge.formats.base import Problem, Tensors
from fuzz.judge.formats.solution import Solution
from fuzz.judge.ops.registrations import load_registrations
from fuzz.judge.ops.schemas import (
    Call,
    find_counterpart,
    find_overload,
    is_written,
    name_results,
    named,
    take_tensors,
    tensors_of,
)
from fuzz.judge.problem.description import Setting, TensorSlot, Unsupported, fill_slots
from fuzz.judge.processes.promotion import HALVES
from fuzz.model.recipes import Recipe

FLOATING = (torch.float32, *HALVES)


@dataclass(frozen=True)
class Sample:
    """One call of an operation, its tensors drawn several times, with slots in their place.

    `operation` is what is judged, `reference` the operation of PyTorch that says what is right; `dtype` is that which
    the sample was asked for in. `declared` are recipes of arguments that may hold anything, `scratch` those that are
    memory for results. `has_form` says that tensors without memory tell the form of the results.
    """

    operation: str
    reference: str
    dtype: torch.dtype
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    draws: tuple[Tensors, ...]
    declared: Mapping[str, Recipe] = field(default_factory=dict)
    scratch: frozenset[str] = frozenset()
    has_form: bool = True


class OpsProblem(Problem):
    """The file of a sample."""

    def __init__(self, path: Path) -> None:
        self.sample: Sample = torch.load(path, weights_only=False)
        self.name, self.constants = self.sample.operation, {}
        self.overload = find_overload(self.sample.reference)
        self.declared, self.scratch = self.sample.declared, self.sample.scratch
        slots = [(one, value) for one, value in named(self.overload, self.sample.args, self.sample.kwargs)]
        self.written = frozenset(name for one, value in slots if is_written(one) for name in slot_names(value))

    def setting(self, dims: Mapping[str, int]) -> Setting:
        return Setting((self.sample.operation, self.sample.has_form), self.sample.args, self.sample.kwargs)

    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        draw = self.sample.draws[seed % len(self.sample.draws)]
        return {name: value.to(torch.get_default_device()) for name, value in draw.items()}, {}

    def compute(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Tensors:
        own = {name: value.clone() if name in self.written else value for name, value in tensors.items()}
        call: Call = fill_slots(self.sample.args, own), fill_slots(dict(self.sample.kwargs), own)
        if dtype is torch.float64:
            call = widen(call[0]), widen(call[1])
        return name_results(self.overload, self.overload(*call[0], **call[1]), call)

    def own_rule(self, outputs: Tensors, expected: Tensors) -> bool:
        """BackendBench accepts relative and absolute errors of 1e-2."""
        return all(
            one.shape == outputs[name].shape
            and torch.allclose(outputs[name].double(), one.double(), 1e-2, 1e-2, equal_nan=True)
            for name, one in expected.items()
        )


def slot_names(value: Any) -> list[str]:
    """The names of the slots that an argument is, or holds."""
    if isinstance(value, TensorSlot):
        return [value.name]
    return [name for part in value for name in slot_names(part)] if isinstance(value, list | tuple) else []


def widen(value: Any) -> Any:
    """Arguments that ask for float64 instead of a narrower dtype."""
    return tree_map(lambda one: torch.float64 if isinstance(one, torch.dtype) and one in FLOATING else one, value)


class OpsSolution(Solution):
    """A module that registers implementations."""

    def __init__(self, path: Path) -> None:
        loaded = load_registrations(path)
        self.module, self.functions, self.differentiable = loaded.module, loaded.functions, loaded.differentiable
        self.operation = ""

    def build(self, setting: Setting) -> Callable[..., Any]:
        operation, has_form = setting.construct
        self.operation = operation
        if operation not in self.functions:
            raise Unsupported(f"it registers nothing for {operation}")
        function, overload = self.functions[operation], find_counterpart(operation)

        def call(*args: Any, **kwargs: Any) -> Tensors:
            expected = expected_form(overload, args, kwargs)
            result = function(*args, **kwargs)
            check_identity(overload, result, (args, kwargs))
            outputs = name_results(overload, result, (args, kwargs))
            if has_form:
                check_form(outputs, expected, take_tensors(overload, (args, kwargs))[1])
            return outputs

        return call

    def call_differentiably(
        self, module: Callable[..., Any], state: Mapping[str, torch.Tensor], arguments: tuple[Any, ...], keywords: Any
    ) -> Any:
        """Calls what is registered for autograd; without such a thing the result has no gradient."""
        function = self.differentiable.get(self.operation)
        if function is None:
            with torch.no_grad():
                return module(*arguments, **keywords)
        return name_results(find_counterpart(self.operation), function(*arguments, **keywords), (arguments, keywords))


class WrongForm(RuntimeError):
    """What an implementation returns differs in kind from what the operation returns."""


@dataclass(frozen=True)
class Form:
    """The outputs of an operation as tensors without memory; `shared` are those that lie in that of an argument."""

    outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)


def expected_form(overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Form:
    """The form of the operation's outputs; empty where it needs to see values."""
    slots, tensors = take_tensors(overload, (args, dict(kwargs)))
    with torch.utils._python_dispatch._disable_current_modes():
        meta = {
            name: torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            for name, value in tensors.items()
        }
        call: Call = to_meta(fill_slots(slots[0], meta)), to_meta(fill_slots(slots[1], meta))
        try:
            outputs = name_results(overload, overload(*call[0], **call[1]), call)
        except Exception:
            return Form()
        return Form(outputs, find_shared(outputs, meta) if returns_views(overload) else {})


def returns_views(overload: Any) -> bool:
    """Whether the schema says that what is returned lies in the memory of an argument, which is not written."""
    return all(one.alias_info is not None and not one.alias_info.is_write for one in overload._schema.returns)


def find_shared(outputs: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """By output the argument in whose memory it lies."""
    places = {one.untyped_storage()._cdata: name for name, one in tensors.items()}
    found = {name: places.get(one.untyped_storage()._cdata, "") for name, one in outputs.items() if one.numel()}
    return {output: name for output, name in found.items() if name}


def to_meta(value: Any) -> Any:
    """Arguments that ask for tensors without memory."""
    return tree_map(lambda one: torch.device("meta") if isinstance(one, torch.device) else one, value)


def check_identity(overload: Any, result: Any, call: Call) -> None:
    """Raises WrongForm where the schema says that an argument is returned, and something else is."""
    written = {
        frozenset(one.alias_info.before_set): one.name
        for one in overload._schema.arguments
        if is_written(one)
    }  # fmt: skip
    values = {one.name: value for one, value in named(overload, *call)}
    results = result if isinstance(result, list | tuple) else (result,)
    for due, got in zip(overload._schema.returns, results, strict=False):
        name = written.get(frozenset(due.alias_info.before_set)) if due.alias_info is not None else None
        own = tensors_of(values.get(name)) if name else []
        if len(own) == 1 and isinstance(got, torch.Tensor) and got.data_ptr() != own[0].data_ptr():
            raise WrongForm(f"it returns a tensor of its own where the schema returns {name}")


def check_form(outputs: Tensors, expected: Form, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises WrongForm where an output has another dtype, shape or other strides than the operation's own.

    Or where it does not lie in the memory of the one of the call's tensors in which that does.
    """
    for name, due in expected.outputs.items():
        got = outputs.get(name)
        if got is None:
            names = ", ".join(expected.outputs)
            raise WrongForm(f"it returns {', '.join(outputs) or 'nothing'}, and the operation {names}")
        if got.dtype != due.dtype:
            raise WrongForm(f"{name} is {got.dtype}, and that of the operation {due.dtype}")
        if got.shape != due.shape:
            raise WrongForm(f"{name} has shape {tuple(got.shape)}, and that of the operation {tuple(due.shape)}")
        if math.prod(due.shape) > 1 and significant_strides(got) != significant_strides(due):
            raise WrongForm(f"{name} has strides {got.stride()}, and that of the operation {due.stride()}")
    for name, argument in expected.shared.items():
        if outputs[name].untyped_storage()._cdata != tensors[argument].untyped_storage()._cdata:
            raise WrongForm(f"{name} is a copy, and that of the operation a view of {argument}")


def significant_strides(value: torch.Tensor) -> list[int]:
    """The strides of the axes that have more than one element."""
    return [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]
