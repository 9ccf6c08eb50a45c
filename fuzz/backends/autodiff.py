"""Gradients: what is done with a launcher while it runs: it is called, or called and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Tensors = Mapping[str, torch.Tensor]
Launch = Callable[[Tensors], Tensors]
"""Calls the launcher with these tensors by name, and the call's options and sizes."""
Computation = Callable[[Launch, Tensors, Tensors], Tensors]
"""(launch, inputs, cotangents by output) -> tensors by name, all in guarded memory."""


def forward(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The outputs."""
    return launch(inputs)


def gradients(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Outputs, and under ``dNAME`` the gradient of every floating input, by the kernel's own backward."""
    leaves = {name: value.requires_grad_() if value.is_floating_point() else value for name, value in inputs.items()}
    outputs = launch(leaves)
    return {**outputs, **backward(outputs, floating(leaves), cotangents)}


def floating(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Those that may have a gradient."""
    return {name: value for name, value in tensors.items() if value.is_floating_point()}


def backward(
    outputs: Tensors, wanted: Tensors, cotangents: Tensors, *, retain: bool = False
) -> dict[str, torch.Tensor]:
    """Under ``dNAME`` the gradient of each of these tensors; without it where autograd says None.

    Outputs that have a cotangent and require a gradient are those that are differentiated.
    """
    heads = {name: outputs[name] for name in cotangents if name in outputs and outputs[name].requires_grad}
    if not heads or not wanted:
        return {}
    along = [cotangents[name] for name in heads]
    found = torch.autograd.grad(
        list(heads.values()), list(wanted.values()), along, retain_graph=retain, allow_unused=True
    )
    return {f"d{name}": value for name, value in zip(wanted, found, strict=True) if value is not None}
