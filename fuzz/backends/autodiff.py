"""Calls a launcher, or calls and differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    grad_outputs = [cotangents[name] for name in heads]
    grads = torch.autograd.grad(
        list(heads.values()), list(leaves.values()), grad_outputs, retain_graph=retain, allow_unused=True
    )
    return {f"d{name}": value for name, value in zip(leaves, grads, strict=True) if value is not None}
