"""Measure: one batch size in a worker: all layers with the whole batch, with its last row alone, and in truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import check_outputs
from fuzz.backends.memory import DTYPE_NAMES
from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift
from fuzz.errors import TargetError, UsageError, one_line
from fuzz.model.case import Argument
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import exact
from fuzz.model.recipes.torch_values import tensor, to_bits
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.reference.envelope import Expected, Precision, evaluate, make_precision
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target

MEMBERS = 20
"""Members of the envelope."""
SEPARATE = "@"
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
        coarse = kind.unit > make_precision(self.plan.backend, self.target.accumulate).u
        accumulate = self.plan.dtype if coarse else self.target.accumulate
        return make_precision(self.plan.backend, accumulate, self.target.dot)

    def tensors(self, layer: int, size: int) -> dict[str, Tensor]:
        """The arguments of one layer. Those with rows of the batch have as many as it."""
        dims = {**self.plan.dims, self.plan.batch: size}
        given = self.plan.arguments(layer, size)
        return {name: self._tensor(one, dims) for name, one in given.items()}

    def _tensor(self, one: Argument, dims: Mapping[str, int]) -> Tensor:
        return tensor(one.values, resolve(one.shape, dims), one.dtype, self.backend.device)

    def last_row(self, arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same with the last row of what has rows of the batch."""
        shapes = self.plan.shapes
        return {
            name: one[-1:].clone() if shapes[name][:1] == (self.plan.batch,) else one for name, one in arguments.items()
        }

    def layer(self, arguments: Mapping[str, Tensor]) -> Tensor:
        """The output that is the next layer's state. TargetError where no output fits."""
        sizes = {name: self.plan.dims[name] for name in self.target.passed_sizes if name != self.plan.batch}
        if self.plan.batch in self.target.passed_sizes:
            sizes[self.plan.batch] = len(arguments[self.plan.state])
        outputs = check_outputs(self.target, self.launcher(**arguments, **self.plan.options, **sizes))
        self.backend.synchronize()
        return outputs[self.output_of({name: tuple(one.shape) for name, one in outputs.items()}, arguments)].detach()

    def output_of(self, shapes: Mapping[str, tuple[int, ...]], arguments: Mapping[str, Tensor]) -> str:
        wanted = tuple(arguments[self.plan.state].shape)
        for name, shape in shapes.items():
            if shape == wanted:
                return name
        told = f"{self.plan.state} is {wanted}, the outputs are {', '.join(map(str, shapes.values()))}"
        raise TargetError(f"layers of {self.target.name} cannot be stacked: {told}; choose sizes by --set")


def make_handler(plan: DriftPlan) -> Callable[[int], BatchDrift]:
    """The worker's handler, batch size -> rows."""
    torch.set_num_threads(1)
    target = load(plan.text)
    launcher = load_planted(target, plan.planted)[1] if plan.planted else target.launcher
    stack = LayerStack(plan, target, launcher, named_backend(plan.backend))
    return lambda size: measured(stack, size)


def measured(stack: LayerStack, size: int) -> BatchDrift:
    """All layers at one batch size."""
    layers = [stack.tensors(layer, size) for layer in range(stack.plan.layers)]
    expected = truth(stack, [stack.last_row(one) for one in layers])
    rows, state = [], None
    whole = layers[0][stack.plan.state]
    alone = whole[-1:].clone()
    with stack.backend.uninstrumented():
        for number, arguments in enumerate(layers):
            before = whole
            whole = stack.layer({**arguments, stack.plan.state: whole})
            alone = stack.layer({**stack.last_row(arguments), stack.plan.state: alone})
            rows.append(compared(stack, size, number, whole[-1], alone[0], expected[number]))
            if rows[-1].differ and state is None:
                state = before
    kind = named_dtype(stack.plan.dtype)
    return BatchDrift(tuple(rows), None if state is None else exact(to_bits(state), kind))


def compared(stack: LayerStack, size: int, number: int, row: Tensor, alone: Tensor, expected: Expected) -> LayerDrift:
    """One layer's last row beside the same row computed alone, and beside the truth."""
    one, other = row.cpu().double(), alone.cpu().double()
    kind = named_dtype(DTYPE_NAMES[row.dtype])
    bound = error_bounds(expected, kind, stack.precision, stack.target.contract)[2].reshape(-1)
    apart = (one - other).abs()
    beyond = (apart > 2 * bound) & torch.isfinite(bound)
    return LayerDrift(
        batch=size,
        layer=number + 1,
        drift=float(apart.mean()),
        truth_error=float((one - expected.value.reshape(-1)).abs().mean()),
        envelope=float(bound.mean()),
        differ=int((one != other).sum()),
        beyond=int(beyond.sum()),
    )


def truth(stack: LayerStack, layers: list[dict[str, Tensor]]) -> list[Expected]:
    """The float64 value of the last row after each layer, and its envelope over the depth up to there.

    All layers are one reference: each layer's perturbed members go into the next one, so that the envelope knows how
    the network itself spreads an error.
    """
    plan, target = stack.plan, stack.target
    inputs: dict[str, Any] = {
        f"{name}{SEPARATE}{number}": one.cpu().double()
        for number, arguments in enumerate(layers)
        for name, one in arguments.items()
    }
    sizes = {name: {**plan.dims, plan.batch: 1}[name] for name in target.passed_sizes}

    def stacked(**given: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        state = given[f"{plan.state}{SEPARATE}0"]
        for number in range(plan.layers):
            arguments = {name: given[f"{name}{SEPARATE}{number}"] for name in plan.shapes}
            arguments[plan.state] = state
            assert target.reference is not None
            outputs = target.reference(**arguments, **plan.options, **sizes)
            state = outputs[stack.output_of({name: tuple(one.shape) for name, one in outputs.items()}, arguments)]
            found[str(number)] = state
        return found

    try:
        found = evaluate(stacked, inputs, stack.precision, members=MEMBERS, uncertainty=False, check_range=False)
    except UsageError:
        raise
    except Exception as error:
        raise TargetError(f"target {target.name!r}: its reference fails: {one_line(error)}") from error
    return [found[str(number)] for number in range(plan.layers)]
