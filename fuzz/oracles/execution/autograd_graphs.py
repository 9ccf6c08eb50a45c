"""Graphs around an autograd function as it stands in a model: computations whose results must be those without a graph.

Each returns tensors by name. ``dX`` is a gradient by the kernel, the same as without other operations. Other names are
gradients of adjacent operations, ``before_X``, ``beside_X``, ``after_Y``; ``due_NAME`` is what such a gradient must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from fuzz.backends.autodiff import Computation, Launch, Tensors, as_gradient, backward, floating

Derivative = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(gradient of the output, what the operation keeps) -> gradient of the input."""
SUBSETS_OF = 3
"""Up to so many inputs every subset of them is tried; of more, each alone and all others without it."""
CLEAR = (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError)
"""What a backward may raise that refuses to run."""


def exp_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The gradient of exp, by its output."""
    return gradient.contiguous() * output.contiguous()


def softmax_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The gradient of softmax over the last dim, by its output."""
    gradient, output = gradient.contiguous(), output.contiguous()
    return output * (gradient - (gradient * output).sum(-1, keepdim=True))


def square_backward(gradient: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The gradient of x * x, by its input."""
    return gradient.contiguous() * value.contiguous() * 2


@dataclass
class ProducedTensor:
    """The case's tensor in its own memory and layout, to be handed through autograd as what an operation gave."""

    tensor: torch.Tensor
    derivative: Derivative


class Producer(torch.autograd.Function):
    """An operation whose output is the tensor of `saved`, whatever its input, and whose backward needs that output."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, saved: ProducedTensor) -> torch.Tensor:
        # As a tensor of its own, not a view, so that a function may write into it the way autograd allows.
        tensor = saved.tensor
        output = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        output.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        ctx.save_for_backward(output)
        ctx.derivative = saved.derivative
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (output,) = ctx.saved_tensors
        return ctx.derivative(gradient, output), None


class Consumer(torch.autograd.Function):
    """x * x, which keeps its input."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value)
        return value * value

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (value,) = ctx.saved_tensors
        return square_backward(gradient, value)


def differentiate_by(names: Iterable[str]) -> Computation:
    """Gradients where only these inputs require one."""
    wanted = frozenset(names)

    def compute(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
        for name in wanted:
            inputs[name].requires_grad_()
        outputs = launch(inputs)
        return {**outputs, **backward(outputs, {name: inputs[name] for name in sorted(wanted)}, cotangents)}

    return compute


def differentiate_outputs(names: Iterable[str]) -> Computation:
    """Gradients where only these outputs are used: a function that asks for it gets None for the others.

    A gradient that is None counts as 0.
    """
    wanted = frozenset(names)

    def compute(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
        leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
        outputs = launch({**inputs, **leaves})
        gradients = backward(outputs, leaves, {name: cotangents[name] for name in cotangents if name in wanted})
        return {**outputs, **{f"d{name}": torch.zeros_like(value) for name, value in leaves.items()}, **gradients}

    return compute


def list_subsets(names: list[str]) -> list[tuple[str, ...]]:
    """Proper subsets with something in them; of many inputs each alone, and all others without it."""
    if len(names) <= SUBSETS_OF:
        return [part for count in range(1, len(names)) for part in combinations(names, count)]
    return [(name,) for name in names] + [tuple(other for other in names if other != name) for name in names]


def run_without_autograd(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The outputs without autograd, where the inputs require a gradient all the same."""
    for value in floating(inputs).values():
        value.requires_grad_()
    with torch.no_grad():
        return launch(inputs)


def run_after_producers(derivative: Derivative) -> Computation:
    """Every floating input is the output of an operation that keeps it: its gradient is ``before_NAME``.

    What that must be follows from the kernel's own gradient and the input's value before the call, by `derivative`.
    ``due_before_NAME`` is that. ``forward_NAME`` and ``backward_NAME`` are the input after each.
    """

    def compute(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
        pristine = {name: value.clone() for name, value in floating(inputs).items()}
        sources = {name: torch.zeros_like(value).requires_grad_() for name, value in pristine.items()}
        produced = {
            name: Producer.apply(sources[name], ProducedTensor(inputs[name], derivative))  # type: ignore[no-untyped-call]
            for name in pristine
        }
        outputs = launch({**inputs, **produced})
        results = {f"forward_{name}": value.detach().clone() for name, value in produced.items()}
        wanted = {**produced, **{f"_{name}": source for name, source in sources.items()}}
        try:
            gradients = backward(outputs, wanted, cotangents)
        except RuntimeError as error:
            return check_refused(error)
        results |= {f"backward_{name}": value.detach().clone() for name, value in produced.items()}
        for name, value in pristine.items():
            if f"d{name}" in gradients:
                results[f"before_{name}"] = gradients[f"d_{name}"]
                results[f"due_before_{name}"] = derivative(gradients[f"d{name}"], value)
        return {**kernel_results(outputs, gradients, pristine), **results}

    return compute


def run_beside_consumers(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Every floating input is squared as well: that gradient is ``beside_NAME``, the two together ``both_NAME``."""
    leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
    pristine = {name: value.detach().clone() for name, value in leaves.items()}
    views = {name: value.view_as(value) for name, value in leaves.items()}
    consumed = {name: value.view_as(value) for name, value in leaves.items()}
    squares = {
        f"square {name}": Consumer.apply(value)  # type: ignore[no-untyped-call]
        for name, value in consumed.items()
    }
    outputs = launch({**inputs, **views})
    ones = {name: torch.ones_like(value) for name, value in squares.items()}
    wanted = {**views, **{f"_{name}": value for name, value in consumed.items()}}
    wanted |= {f"__{name}": value for name, value in leaves.items()}
    try:
        gradients = backward({**outputs, **squares}, wanted, {**cotangents, **ones})
    except RuntimeError as error:
        return check_refused(error)
    results = {}
    for name, value in pristine.items():
        if f"d{name}" in gradients:
            results[f"beside_{name}"] = gradients[f"d_{name}"]
            results[f"due_beside_{name}"] = square_backward(ones[f"square {name}"], value)
            results[f"both_{name}"] = gradients[f"d__{name}"]
            results[f"due_both_{name}"] = gradients[f"d{name}"] + results[f"due_beside_{name}"]
    return {**kernel_results(outputs, gradients, pristine), **results}


def run_before_sums(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """To every output something is added, whose gradient, ``after_OUTPUT``, is the cotangent that autograd is given."""
    leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
    pristine = {name: value.clone() for name, value in cotangents.items()}
    outputs = launch({**inputs, **leaves})
    heads = floating(outputs)
    added = {name: torch.zeros_like(heads[name]).requires_grad_() for name in cotangents if name in heads}
    sums = {**outputs, **{name: outputs[name] + value for name, value in added.items()}}
    gradients = backward(sums, {**leaves, **{f"_{name}": value for name, value in added.items()}}, cotangents)
    results = {f"after_{name}": gradients[f"d_{name}"] for name in added if f"d_{name}" in gradients}
    results |= {f"due_after_{name}": as_gradient(pristine[name], value) for name, value in added.items()}
    return {**kernel_results(outputs, gradients, leaves), **results}


def run_backward_twice(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Differentiated twice. ``dNAME`` is the second time's gradient, ``first_NAME`` the first time's after that."""
    leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
    outputs = launch({**inputs, **leaves})
    first = backward(outputs, leaves, cotangents, retain=True)
    kept = {name: value.clone() for name, value in first.items()}
    try:
        second = backward(outputs, leaves, cotangents)
    except CLEAR:
        return {}
    results = {f"first_{name[1:]}": value for name, value in first.items()}
    return {**second, **results, **{f"due_first_{name[1:]}": value for name, value in kept.items()}}


def overwrite_before_backward(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Inputs and outputs are set to 0 before the backward: a clear error, or the gradients of what they were."""
    leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
    outputs = launch({**inputs, **leaves})
    for value in (*inputs.values(), *outputs.values()):
        try:
            value.detach().zero_()
        except RuntimeError:  # Several elements share memory; torch does not write there.
            continue
    try:
        return backward(outputs, leaves, cotangents)
    except CLEAR:
        return {}


def run_between_calls(launch: Launch, inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The function is called once more, with zeros, before the first call's backward."""
    leaves = {name: value.requires_grad_() for name, value in floating(inputs).items()}
    outputs = launch({**inputs, **leaves})
    others = {name: torch.zeros_like(value).requires_grad_() for name, value in leaves.items()}
    launch({**{name: value.clone() for name, value in inputs.items()}, **others})
    return {**outputs, **backward(outputs, leaves, cotangents)}


def kernel_results(outputs: Tensors, gradients: Tensors, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The kernel's outputs and gradients."""
    return {**outputs, **{f"d{name}": gradients[f"d{name}"] for name in names if f"d{name}" in gradients}}


def check_refused(error: RuntimeError) -> dict[str, torch.Tensor]:
    """Nothing, where autograd itself saw that a tensor was written over; else the error."""
    if "modified by an inplace operation" in str(error):
        return {}
    raise error


def pair_expected_gradients(gradients: Tensors) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
    """(what came, what is due) of the operations beside the kernel."""
    marked = {name.removeprefix("due_"): value for name, value in gradients.items() if name.startswith("due_")}
    return {name: (gradients[name], due) for name, due in marked.items() if name in gradients}
