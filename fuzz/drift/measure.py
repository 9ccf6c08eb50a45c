"""Measures one batch size in a worker: all layers with the whole batch, with its last row alone, and in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import check_outputs
from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift
from fuzz.errors import TargetError
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Outcome
from fuzz.model.recipes import exact
from fuzz.model.recipes.torch_values import tensor, to_bits
from fuzz.oracles.comparison.bits import same_bits
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.oracles.examine import load_launcher
from fuzz.reference.envelope import Expected, Precision, make_precision
from fuzz.sweep.correct_rounding import evaluate_reference
from fuzz.sweep.handler import answer_by_outcome, launching
from fuzz.target.spec import Launcher, Target
from fuzz.worker.channel import LastResponse
from fuzz.worker.protocol import WorkerConfig

MEMBERS = 20
"""Members of the envelope."""
SEPARATOR = "@"
"""Between an argument's name and its layer."""


@dataclass
class LayerStack:
    """A plan with its target loaded: layers that follow each other."""

    plan: DriftPlan
    target: Target
    launcher: Launcher
    backend: Backend

    @property
    def precision(self) -> Precision:
        """The arithmetic of a layer; its results are kept in the plan's dtype, which may be the coarser one."""
        kind = named_dtype(self.plan.dtype)
        coarse = kind.unit > make_precision(self.backend.arithmetic, self.target.accumulate).u
        accumulate = self.plan.dtype if coarse else self.target.accumulate
        return make_precision(self.backend.arithmetic, accumulate, self.target.dot)

    def tensors(self, layer: int, size: int) -> dict[str, Tensor]:
        """The arguments of one layer. Those with rows of the batch have as many as it."""
        dims = {**self.plan.dims, self.plan.batch: size}
        return {
            name: tensor(argument.values, resolve(argument.shape, dims), argument.dtype, self.backend.device)
            for name, argument in self.plan.arguments(layer, size).items()
        }

    def last_row(self, arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The arguments with only the last row of those that have rows of the batch."""
        batched = {name for name, shape in self.plan.shapes.items() if shape[:1] == (self.plan.batch,)}
        return {name: values[-1:].clone() if name in batched else values for name, values in arguments.items()}

    def layer(self, arguments: Mapping[str, Tensor]) -> Tensor:
        """The output that is the next layer's state. TargetError where no output fits; raises as `launching` does."""
        scalars = self.target.scalars(self.plan.case(0, len(arguments[self.plan.state])).last)
        with launching(self.backend):
            outputs = check_outputs(self.target, self.launcher(**arguments, **scalars))
        return self.next_state(outputs, arguments).detach()

    def next_state(self, outputs: Mapping[str, Tensor], arguments: Mapping[str, Tensor]) -> Tensor:
        """The first output of the state's shape. TargetError where there is none."""
        wanted = tuple(arguments[self.plan.state].shape)
        for output in outputs.values():
            if tuple(output.shape) == wanted:
                return output
        shapes = ", ".join(str(tuple(output.shape)) for output in outputs.values())
        mismatch = f"{self.plan.state} is {wanted}, the outputs are {shapes}"
        raise TargetError(f"layers of {self.target.name} cannot be stacked: {mismatch}; choose sizes by --set")


def make_handler(plan: DriftPlan) -> Callable[[int], BatchDrift | Outcome | LastResponse]:
    """The worker's handler, batch size -> the drift of its layers."""
    launcher = load_launcher(WorkerConfig(plan.text, plan.planted, plan.backend))
    stack = LayerStack(plan, *launcher, named_backend(plan.backend))
    return answer_by_outcome(stack.backend, partial(measure_batch, stack))


def measure_batch(stack: LayerStack, size: int) -> BatchDrift:
    """All layers at one batch size. Raises as `LayerStack.layer` does."""
    layers = [stack.tensors(layer, size) for layer in range(stack.plan.layers)]
    expected = reference_layers(stack, [stack.last_row(arguments) for arguments in layers])
    drifts, state = [], None
    whole = layers[0][stack.plan.state]
    alone = whole[-1:].clone()
    for number, arguments in enumerate(layers):
        before = whole
        whole = stack.layer({**arguments, stack.plan.state: whole})
        alone = stack.layer({**stack.last_row(arguments), stack.plan.state: alone})
        drifts.append(compare_row(stack, size, number, whole[-1], alone[0], expected[number]))
        if drifts[-1].differ and state is None:
            state = before
    kind = named_dtype(stack.plan.dtype)
    return BatchDrift(tuple(drifts), None if state is None else exact(to_bits(state), kind))


def compare_row(
    stack: LayerStack, size: int, number: int, row: Tensor, alone: Tensor, expected: Expected
) -> LayerDrift:
    """One layer's last row against the same row computed alone, and against the reference."""
    batched, single = row.cpu().double(), alone.cpu().double()
    kind = named_dtype(DTYPE_NAMES[row.dtype])
    bound = error_bounds(expected, kind, stack.precision, stack.target.contract)[2].reshape(-1)
    same = same_bits(batched, single)
    # Of infinities and NaNs that are the same the difference is none, and no number.
    difference = (batched - single).abs().masked_fill(same, 0)
    beyond = ~(difference <= 2 * bound) & torch.isfinite(bound)
    return LayerDrift(
        batch=size,
        layer=number + 1,
        drift=float(difference.mean()),
        truth_error=float((batched - expected.value.reshape(-1)).abs().mean()),
        envelope=float(bound.mean()),
        differ=int((~same).sum()),
        beyond=int(beyond.sum()),
    )


def reference_layers(stack: LayerStack, layers: list[dict[str, Tensor]]) -> list[Expected]:
    """The float64 value of the last row after each layer, and its envelope over the depth up to there.

    All layers are one reference: each layer's perturbed members go into the next one, so that the envelope knows how
    the network itself spreads an error.
    """
    plan, target = stack.plan, stack.target
    inputs: dict[str, Any] = {
        f"{name}{SEPARATOR}{number}": values.cpu().double()
        for number, arguments in enumerate(layers)
        for name, values in arguments.items()
    }
    scalars = target.scalars(plan.case(0, 1).last)

    def reference(**inputs: Tensor) -> dict[str, Tensor]:
        states: dict[str, Tensor] = {}
        state = inputs[f"{plan.state}{SEPARATOR}0"]
        for number in range(plan.layers):
            arguments = {name: inputs[f"{name}{SEPARATOR}{number}"] for name in plan.shapes} | {plan.state: state}
            assert target.reference is not None
            state = stack.next_state(target.reference(**arguments, **scalars), arguments)
            states[str(number)] = state
        return states

    how = dict(members=MEMBERS, uncertainty=False, check_range=False)
    expected = evaluate_reference(target, reference, inputs, stack.precision, **how)
    return [expected[str(number)] for number in range(plan.layers)]
