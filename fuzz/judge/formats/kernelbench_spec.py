"""A problem of KernelBench whose inputs, dims and dtypes a spec of AI-bench gives, and not its own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fuzz.errors import UsageError
from fuzz.judge.formats.base import Tensors
from fuzz.judge.formats.kernelbench import KernelBenchProblem
from fuzz.judge.formats.spec import INHERIT, SpecInput, read_spec
from fuzz.judge.problem.description import Unsupported

MAKERS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scale": lambda value: value * torch.rand((), dtype=value.dtype),
    "softmax": lambda value: value.softmax(-1),
    "tril": torch.tril,
    "triu": torch.triu,
    "symmetric": lambda value: (value + value.mT) / 2,
    "rademacher": lambda value: torch.where(value < 0, -torch.ones_like(value), torch.ones_like(value)),
}
"""What is done to normal values, by the names that specs give it."""


class SpecProblem(KernelBenchProblem):
    """A problem's file with its spec. Raises UsageError where one of them is none."""

    needs = frozenset({"Model"})

    def __init__(self, path: Path, spec: Path) -> None:
        super().__init__(path)
        self.spec = read_spec(spec)
        self.constants = self.spec.own.sizes
        self.dtype = getattr(torch, self.spec.own.dtype)
        self.variants = tuple(self.spec.others())
        for name in self.spec.own.params:
            unknown = set(self.spec.inputs[name].makers) - MAKERS.keys()
            if unknown:
                raise UsageError(
                    f"{spec} makes {name} by {', '.join(sorted(unknown))}, and known are {', '.join(MAKERS)}"
                )

    def execute(self, dims: Mapping[str, int]) -> dict[str, Any]:
        names = super().execute({})
        names.pop("get_input_groups", None)
        names["get_init_inputs"] = lambda: [self.spec.value(name, dims) for name in self.spec.inits]
        names["get_inputs"] = lambda: [self.make_input(self.spec.inputs[name], dims) for name in self.spec.own.params]
        return names

    def make_input(self, one: SpecInput, dims: Mapping[str, int]) -> torch.Tensor:
        """Values of an input: normal ones, or whole numbers in its range."""
        shape = [dims[axis] if isinstance(axis, str) else axis for axis in one.shape]
        dtype = self.dtype if one.dtype == INHERIT else getattr(torch, one.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise Unsupported(f"the spec has an input of the dtype {one.dtype}")
        if not dtype.is_floating_point:
            low, high = (dims[end] if isinstance(end, str) else end for end in one.range)
            return torch.randint(low, max(high, low + 1), shape).to(dtype)
        value = torch.randn(shape, dtype=dtype)
        for maker in one.makers:
            value = MAKERS[maker](value)
        return value

    def make(self, dims: Mapping[str, int], seed: int) -> tuple[Tensors, Tensors]:
        arguments, state = super().make(dims, seed)
        return arguments, {name: value.to(self.dtype) for name, value in state.items()}
