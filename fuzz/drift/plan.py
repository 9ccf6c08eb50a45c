"""Plans a drift measurement: which target is stacked, over which argument, at which sizes, with which inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fuzz.errors import UsageError
from fuzz.escaping import clean_text
from fuzz.model.case import Argument, Call, Case, Scalar, Split
from fuzz.model.dims import Size, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Recipe, Values, recipe
from fuzz.sweep.plan import only_batch_dim, parse_options, takes_indices
from fuzz.target.spec import Target

DTYPES = ("float32", "bfloat16", "float16")
WIDTH = 64
"""Every dim but the batch, where none is given."""
BATCHES = (1, 16, 128, 1024)
SEED_STRIDE = 64
"""From one layer's seeds to the next one's: more than a target has arguments."""
MOST_LAYERS = 10_000
"""Layers whose outputs are kept and compared, at most."""
LARGEST_SEED = (1 << 46) - 1
"""So that no layer's seed reaches 2^63."""
MAX_DIGITS = 20
"""Digits of a size that are read."""
MAX_ELEMENTS = 1 << 22
"""Elements of the largest tensor."""


@dataclass(frozen=True)
class DriftPlan:
    """`state` is the argument that a layer's output replaces in the next; all its rows belong to the batch dim."""

    text: str
    target: str
    planted: str | None
    backend: str
    dtype: str
    batch: str
    state: str
    layers: int
    batches: tuple[int, ...]
    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0
    bitwise: bool = True

    def arguments(self, layer: int, size: int) -> dict[str, Argument]:
        """The arguments of one layer, from 0, at a batch size; the state is that of the first layer."""
        dims = {**self.dims, self.batch: size}
        arguments = {}
        for index, (name, shape) in enumerate(self.shapes.items()):
            seed = (self.seed * 1024 + layer) * SEED_STRIDE + index
            arguments[name] = Argument(shape, self.dtype, layer_values(resolve(shape, dims), seed, name == self.state))
        return arguments

    def case(self, layer: int, size: int, state: Values | None = None) -> Case:
        """The ordinary case in which the last row of a layer's batch is computed alone."""
        arguments = self.arguments(layer, size)
        if state is not None:
            arguments[self.state] = replace(arguments[self.state], values=state)
        call = Call({**self.dims, self.batch: size}, arguments, dict(self.options))
        return Case(self.target, (call,), Split(size - 1, 1))


@dataclass(frozen=True)
class LayerDrift:
    """One layer at one batch size. Mean absolute values over the last row: how far it is from the row computed alone,
    and from the truth; and the mean of what the envelope over the depth allows an element.

    `differ` of its elements have other bits than alone; `beyond` of them differ by more than the envelope allows two.
    """

    batch: int
    layer: int
    drift: float
    truth_error: float
    envelope: float
    differ: int = 0
    beyond: int = 0


@dataclass(frozen=True)
class BatchDrift:
    """All layers at one batch size. `state` are the bits of the state before the first layer at which bits differ."""

    layers: tuple[LayerDrift, ...]
    state: Values | None = None

    @property
    def first_different(self) -> int | None:
        """The first layer, from 1, at which bits differ."""
        return next((layer.layer for layer in self.layers if layer.differ), None)


def layer_values(shape: tuple[int, ...], seed: int, state: bool) -> Recipe:
    """Normal values; those of a matrix that rows are multiplied with so small that the results keep their size."""
    small = -round(math.log2(math.sqrt(max(shape[0], 1)))) if len(shape) > 1 and not state else 0
    return recipe("normal", seed, exponent=max(small, -24))


def make_plan(
    target: Target,
    text: str,
    *,
    backend: str,
    layers: int = 20,
    batches: tuple[int, ...] = BATCHES,
    dtype: str = "",
    planted: str | None = None,
    settings: Mapping[str, str] | None = None,
    seed: int = 0,
) -> DriftPlan:
    """The plan of what a person asked for. UsageError says what does not fit, in one line."""
    batch = stackable_dim(target)
    remaining = dict(settings or {})
    if layers < 1 or not batches or min(batches) < 1:
        raise UsageError("--layers and --batches must be at least 1")
    if layers > MOST_LAYERS:
        raise UsageError(f"--layers must be at most {MOST_LAYERS}")
    rows = next(dim for dim in target.sizes if dim.name == batch)
    for size in batches:
        if rows.clamp(size) != size:
            raise UsageError(f"--batches {size}: {batch} of {target.name} is {rows.low} to {rows.high}")
    if batch in remaining:
        raise UsageError(f"--set {batch}: the rows are as many as --batches says")
    if seed > LARGEST_SEED:
        raise UsageError(f"--seed must be at most {LARGEST_SEED}")
    dims = {dim.name: choose_size(dim, target, remaining.pop(dim.name, "")) for dim in target.sizes}
    del dims[batch]
    options = parse_options(target, remaining)
    if remaining:
        known = ", ".join([*dims, *target.options])
        raise UsageError(f"--set {next(iter(remaining))}: {target.name} has no such dim or option; there is {known}")
    is_dtype_given = bool(dtype)
    dtype = dtype or next(iter(target.tensors.values())).dtypes[0]
    for name, argument in target.tensors.items():
        if dtype not in DTYPES or dtype not in argument.dtypes:
            asked = f"--dtype {dtype}" if is_dtype_given else f"no layer can be in {dtype}"
            raise UsageError(f"{asked}: {name} of {target.name} is one of {', '.join(argument.dtypes)}")
    shapes = {name: argument.shape for name, argument in target.tensors.items()}
    state = state_argument(target, batch)
    for name, shape in shapes.items():
        if (elements := math.prod(resolve(shape, {**dims, batch: max(batches)}))) > MAX_ELEMENTS:
            raise UsageError(f"{name} would have {elements:,} elements; at most {MAX_ELEMENTS:,}")
    return DriftPlan(
        text, target.name, planted, backend, dtype, batch, state, layers, tuple(sorted(set(batches))), dims, shapes,
        options, seed, target.invariance == "bitwise",
    )  # fmt: skip


def choose_size(dim: Size, target: Target, text: str) -> int:
    """The size of a dim that a person gives, or the one nearest to WIDTH. UsageError where it may not be that."""
    if not text:
        return dim.clamp(WIDTH)
    digits = text.isascii() and text.isdigit() and len(text) < MAX_DIGITS
    if not digits or int(text) < 1:
        raise UsageError(f"--set {dim.name}={clean_text(text, MAX_DIGITS)}: a size, at least 1")
    if dim.clamp(int(text)) != int(text):
        multiples = f", a multiple of {dim.multiple}" if dim.multiple > 1 else ""
        raise UsageError(f"--set {dim.name}={text}: {dim.name} of {target.name} is {dim.low} to {dim.high}{multiples}")
    return int(text)


def stackable_dim(target: Target) -> str:
    """The dim whose rows do not depend on each other; UsageError where there is none, or no layer can be stacked."""
    batch = only_batch_dim(target)
    if target.reference is None or target.differentiable or batch is None:
        raise UsageError(f"{target.name} promises nothing about rows of a batch, so that there is no drift to measure")
    if takes_indices(target):
        raise UsageError(f"{target.name} takes indices, so that its layers cannot be stacked")
    return batch


def state_argument(target: Target, batch: str) -> str:
    """The first tensor that has rows of the batch."""
    for name, argument in target.tensors.items():
        if argument.shape[:1] == (batch,) and named_dtype(argument.dtypes[0]).is_float:
            return name
    raise UsageError(f"no argument of {target.name} has rows of {batch}, so that its layers cannot be stacked")
