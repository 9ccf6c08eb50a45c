"""KernelBench's solutions: a file with a module ``ModelNew``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fuzz.judge.formats.solution import Solution, load_module
from fuzz.judge.problem import NotComparable, Setting, Unsupported


class KernelBenchSolution(Solution):
    """A solution's file. Raises Unsupported where it has no ``ModelNew``."""

    def __init__(self, path: Path) -> None:
        self.module = load_module(path)
        if not hasattr(self.module, "ModelNew"):
            raise Unsupported(f"{path.name} has no class ModelNew")
        self.model = self.module.ModelNew

    def build(self, setting: Setting) -> Callable[..., Any]:
        torch.manual_seed(0)
        module: Callable[..., Any] = self.model(*setting.construct)
        return module

    def call_differentiably(
        self, module: Callable[..., Any], state: Mapping[str, torch.Tensor], arguments: tuple[Any, ...], keywords: Any
    ) -> Any:
        if not isinstance(module, torch.nn.Module):
            return module(*arguments, **keywords)
        return torch.func.functional_call(module, dict(state), arguments, keywords)

    def set_state(self, module: Any, state: Mapping[str, torch.Tensor]) -> None:
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, value in state.items():
            if name not in own:
                raise NotComparable(f"the problem's {name} has no counterpart of that name in the solution's ModelNew")
            if own[name].shape != value.shape:
                shapes = f"{tuple(own[name].shape)}, and in the problem {tuple(value.shape)}"
                raise NotComparable(f"{name} has shape {shapes}")
            own[name].data = value
        if extra := [name for name, one in module.named_parameters() if name not in state]:
            raise NotComparable(f"the solution's {extra[0]} has no counterpart of that name in the problem's Model")
