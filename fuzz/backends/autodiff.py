"""Calls a launcher, or calls and differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]
Launch = Callable[[Tensors], Tensors]
"""Calls the launcher with tensors by name, and with the call's options and sizes; returns its outputs by name."""
Computation = Callable[[Launch, Tensors, Tensors], Tensors]
"""(launch, inputs by name, cotangents by output) -> tensors by name, all in guarded memory."""


def forward(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The outputs by name."""
    return launch(inputs)


def gradients(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Outputs, and under ``dNAME`` the gradient of every floating input, by the kernel's own backward."""
    leaves = {name: value.requires_grad_() if value.is_floating_point() else value for name, value in inputs.items()}
    outputs = launch(leaves)
    return {**outputs, **backward(outputs, floating(leaves), cotangents)}


class SharedMemory(torch.autograd.Function):
    """The identity, whose result lies in the memory of its argument and shares its version counter."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def make_writable(tensors: Tensors, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The tensors, of which the named ones are tensors of their own in the same memory where they are leaves or views.

    Autograd lets nothing write to a leaf that requires a gradient, and differentiates a view with its whole buffer.
    """
    given = {name: tensors[name] for name in names if name in tensors}
    given = {name: value for name, value in given.items() if value.is_leaf or value._is_view()}
    pass_on: Callable[[torch.Tensor], torch.Tensor] = SharedMemory.apply
    return {**tensors, **{name: pass_on(value) for name, value in given.items()}}


def floating(tensors: Tensors) -> dict[str, torch.Tensor]:
    """The tensors that may have a gradient."""
    return {name: value for name, value in tensors.items() if value.is_floating_point()}


def backward(
    outputs: Tensors, leaves: Tensors, cotangents: Tensors, *, retain: bool = False
) -> dict[str, torch.Tensor]:
    """Under ``dNAME`` the gradient of each of the leaves for which autograd has one.

    Differentiated are the outputs that have a cotangent and require a gradient.
    """
    heads = {name: outputs[name] for name in cotangents if name in outputs and outputs[name].requires_grad}
    if not heads or not leaves:
        return {}
    grad_outputs = [as_gradient(cotangents[name], head) for name, head in heads.items()]
    for name, head in heads.items():
        # torch fails while it words this for several outputs.
        if head.shape != cotangents[name].shape:
            shapes = f"{tuple(head.shape)}, and its gradient {tuple(cotangents[name].shape)}"
            raise RuntimeError(f"output {name!r} has shape {shapes}")
    grads = differentiate(list(heads.values()), list(leaves.values()), grad_outputs, retain=retain)
    return {f"d{name}": value for name, value in zip(leaves, grads, strict=True) if value is not None}


def differentiate(
    heads: list[torch.Tensor], leaves: list[torch.Tensor], grad_outputs: list[torch.Tensor], *, retain: bool = False
) -> tuple[torch.Tensor | None, ...]:
    """What `torch.autograd.grad` returns of the leaves; None for those that no head depends on.

    That compares shapes by functions whose import takes 0.3 s of each process, and is asked only where they differ.
    Modes such as a default device are not on while functions' backwards run, as they are not there.
    """
    given = (*heads, *leaves)
    if torch.overrides.has_torch_function(given):
        grads: tuple[torch.Tensor | None, ...] = torch.overrides.handle_torch_function(
            differentiate, given, heads, leaves, grad_outputs, retain=retain
        )
        return grads
    if any(head.shape != grad.shape for head, grad in zip(heads, grad_outputs, strict=True)):
        return torch.autograd.grad(heads, leaves, grad_outputs, retain_graph=retain, allow_unused=True)
    arguments = (tuple(heads), tuple(grad_outputs), retain, False, tuple(leaves))
    return torch.autograd.graph._engine_run_backward(*arguments, allow_unreachable=True, accumulate_grad=False)


def as_gradient(cotangent: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """What an output's backward gets of a cotangent: its dtype, whose largest number stands for larger ones.

    Autograd would round these to infinities, which no case holds.
    """
    largest = torch.finfo(output.dtype).max
    if largest >= torch.finfo(cotangent.dtype).max:
        return cotangent.to(output.dtype)
    clamped = cotangent.double().clamp(-largest, largest)
    return torch.where(cotangent.isinf(), cotangent.double(), clamped).to(output.dtype)
