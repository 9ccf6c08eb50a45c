"""Defines what a format of problems has to provide, in the process that holds the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from fuzz.judge.problem.description import Setting, TensorSlot, Variant
from fuzz.model.recipes import Recipe

Tensors = dict[str, torch.Tensor]


class Problem(ABC):
    """A problem, its dims free. `constants` are the dims that it states, by name."""

    name: str
    constants: Mapping[str, int]
    scratch: frozenset[str] = frozenset()
    """Arguments that are memory for outputs: their values are anything."""
    fixed: frozenset[str] = frozenset()
    """The state whose values are always those that the problem makes: buffers, such as a running variance."""
    declared: Mapping[str, Recipe] = MappingProxyType({})
    """Recipes of arguments that may hold anything, where the problem says so."""
    written: frozenset[str] = frozenset()
    """Arguments that a solution has to write, where the problem says so."""
    fixes_dtypes: bool = True
    """Whether the format's own rule refuses outputs of another dtype than the problem's own."""
    variants: tuple[Variant, ...] = ()
    """Other dims and dtypes that the problem states."""

    @abstractmethod
    def setting(self, dims: Mapping[str, int]) -> Setting:
        """What a solution is given beside tensors at these dims. Raises what the problem raises."""

    @abstractmethod
    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        """The arguments, and the state of the module, that the problem makes from a seed, by name."""

    def prepare(self, dims: Mapping[str, int]) -> None:
        """Does what needs random numbers, which are refused where `compute` is evaluated exactly."""
        self.setting(dims)

    @abstractmethod
    def compute(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Tensors:
        """The outputs of the problem's own code for arguments and state, which have that dtype, by name."""

    def own_rule(self, outputs: Tensors, expected: Tensors) -> bool:
        """Whether outputs pass by the rule of the format, beside those of the problem's code in the same dtype."""
        return all(
            one.shape == outputs[name].shape and torch.allclose(outputs[name].to(one.dtype), one, *tolerance(one.dtype))
            for name, one in expected.items()
        )


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) by which KernelBench accepts outputs."""
    return (1e-2, 1e-2) if dtype in (torch.float16, torch.bfloat16) else (1e-4, 1e-4)


def name_outputs(value: Any) -> Tensors:
    """Outputs by name: ``out``, or ``out0``, ``out1``, .. of several, or the names of a dict. TypeError for others."""
    if isinstance(value, torch.Tensor):
        return {"out": value}
    if isinstance(value, dict):
        parts = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts = {f"out{index}": part for index, part in enumerate(value)}
    else:
        raise TypeError(f"returns {type(value).__name__}, not tensors")
    flat: Tensors = {}
    for key, part in parts.items():
        if isinstance(part, list | tuple | dict):
            flat |= {f"{key}_{inner}": tensor for inner, tensor in name_outputs(part).items()}
        elif isinstance(part, int | float | bool):
            flat[key] = torch.tensor(part)
        elif part is not None:
            flat |= {key: name_outputs(part)["out"]}
    return flat


def take_slots(value: Any, names: list[str], found: Tensors) -> Any:
    """The value with slots in the place of tensors, which are put into `found` under the next of these names."""
    if isinstance(value, torch.Tensor):
        name = names.pop(0) if names else f"x{len(found)}"
        found[name] = value
        return TensorSlot(name)
    if isinstance(value, list | tuple):
        return type(value)(
            take_slots(part, [], found) if not names else take_slots(part, names, found) for part in value
        )
    if isinstance(value, dict):
        return {key: take_slots(part, [f"{key}"], found) for key, part in value.items()}
    if names:
        names.pop(0)
    return value
