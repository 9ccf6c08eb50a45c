"""KernelBench's solutions: a file with a module ``ModelNew``, or ``Model`` as in AI-bench's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from fuzz.backends.triton_host.generators import seed_generators
from fuzz.judge.formats.solution import Solution, load_module
from fuzz.judge.formats.weights import FILLS, Weight, describe_renamed, match_weights
from fuzz.judge.problem.description import Setting, Unsupported


class KernelBenchSolution(Solution):
    """A solution's file. Raises Unsupported where it has neither module."""

    def __init__(self, path: Path) -> None:
        self.module = load_module(path)
        names = [name for name in ("ModelNew", "Model") if hasattr(self.module, name)]
        if not names:
            raise Unsupported(f"{path.name} has no class ModelNew")
        self.model = getattr(self.module, names[0])
        self.names: MutableMapping[torch.nn.Module, dict[str, str]] = WeakKeyDictionary()
        """Module -> the problem's name of each weight -> the module's own name."""
        self.placed: MutableMapping[torch.nn.Module, dict[str, tuple[int, int]]] = WeakKeyDictionary()
        """Module -> name of a weight -> address and version of the value that it has."""

    def build(self, setting: Setting) -> Callable[..., Any]:
        seed_generators(0)
        module: Callable[..., Any] = self.model(*setting.construct)
        return module

    def call_differentiably(
        self, module: Callable[..., Any], state: Mapping[str, torch.Tensor], arguments: tuple[Any, ...], keywords: Any
    ) -> Any:
        if not isinstance(module, torch.nn.Module):
            return module(*arguments, **keywords)
        named = {self.names[module][name]: value for name, value in state.items()}
        return torch.func.functional_call(module, named, arguments, keywords)

    def set_state(self, module: Any, state: Mapping[str, torch.Tensor], wanted: Sequence[Weight]) -> None:
        if not isinstance(module, torch.nn.Module):
            return super().set_state(module, state, wanted)
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        if module not in self.names:
            given = [
                Weight(name, tuple(one.shape), find_fill(one), isinstance(one, torch.nn.Parameter))
                for name, one in own.items()
            ]
            self.names[module] = match_weights(wanted, given)
            self.renamed = describe_renamed(self.names[module])
        for name, value in state.items():
            self._assign(module, own[self.names[module][name]], self.names[module][name], value)

    def _assign(self, module: torch.nn.Module, weight: torch.Tensor, name: str, value: torch.Tensor) -> None:
        """Gives a weight the memory of a value, and where that or its content is new, another version.

        An optimiser's step, load_state_dict and copy_ count versions as well, and a solution may rely on it.
        """
        placed = self.placed.setdefault(module, {})
        version = value.data_ptr(), value._version
        if placed.get(name) != version:
            weight.data = value
            torch.autograd.graph.increment_version(weight)
            placed[name] = version


def find_fill(value: torch.Tensor) -> str:
    """What a tensor is filled with, if it is one of FILLS."""
    return next((name for number, name in enumerate(FILLS) if bool((value == number).all())), "")
