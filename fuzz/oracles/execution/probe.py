"""Calls a target's reference once on tiny tensors, to learn what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

import torch

from fuzz.backends.guarded_memory import TORCH_DTYPES
from fuzz.errors import ReferenceFailedError, TargetError, one_line
from fuzz.model.case import Call, Scalar
from fuzz.model.dims import names, resolve
from fuzz.target.shapes import Shape
from fuzz.target.spec import Target
from fuzz.target_code import REFERENCE, executing
from fuzz.worker import activity
from fuzz.worker.child.serve import running

MOST_CHOICES = 64
"""Combinations of options for which a reference is called to learn which outputs there are."""
LARGEST_CALL = 1 << 16
"""Elements of a call for which the reference is evaluated to learn the shapes of its outputs."""
REFERENCE_DTYPES = {torch.float64, *(dtype for dtype in TORCH_DTYPES.values() if not dtype.is_floating_point)}
"""Dtypes of a reference's outputs."""


def reference_dtype(name: str) -> torch.dtype:
    """What the reference is given for an argument of this dtype: float64 for every float."""
    dtype = TORCH_DTYPES[name]
    return torch.float64 if dtype.is_floating_point else dtype


def check_reference(target: Target) -> Mapping[str, torch.Tensor]:
    """What the reference returns.

    TargetError where an output is no tensor, or of a dtype in which no reference computes (floats are float64), and
    where an output is never there whose gradient is declared.
    """
    outputs = probe_reference(target)
    for name, value in outputs.items():
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        if kind not in REFERENCE_DTYPES:
            where = f"target {target.name!r}: the reference returns {name!r}"
            raise TargetError(f"{where} as {kind}, where a tensor of torch.float64, of integers or of bools is due")
    check_cotangents(target, outputs)
    known = {*outputs, *target.cotangents, *(f"d{name}" for name in target.tensors if target.cotangents)}
    if outputs and not target.options and (unknown := sorted(target.rows.keys() - known)):
        missing = ", ".join(unknown)
        raise TargetError(f"target {target.name!r}: rows= names {missing}; there are {', '.join(sorted(known))}")
    return outputs


def check_cotangents(target: Target, outputs: Mapping[str, object]) -> None:
    """TargetError where `differentiable` names an output that the reference never returns, or with another shape.

    `outputs` are those by default. Of more than MOST_CHOICES combinations of options no other one is tried.
    """
    choices = {name: option.choices for name, option in target.options.items()}
    if target.reference is None or not target.cotangents:
        return
    check_cotangent_shapes(target, outputs, probe_dims(target), {name: first[0] for name, first in choices.items()})
    returned = set(outputs)
    if returned >= target.cotangents.keys() or prod(map(len, choices.values())) > MOST_CHOICES:
        return
    for chosen in product(*choices.values()):
        try:
            returned |= set(probe_reference(target, dict(zip(choices, chosen, strict=True))))
        except TargetError:
            return  # Which choices go together, nobody knows.
    if unknown := sorted(target.cotangents.keys() - returned):
        missing, known = ", ".join(unknown), ", ".join(sorted(returned))
        raise TargetError(f"target {target.name!r}: differentiable names {missing}; the reference returns {known}")


def check_cotangent_shapes(
    target: Target, outputs: Mapping[str, object], dims: Mapping[str, int], options: Mapping[str, Scalar]
) -> None:
    """TargetError where the reference returns an output in a shape that `differentiable` does not declare for it."""
    for name, declared in target.cotangents.items():
        shapes = dict.fromkeys(declared.legal_shape(shape, options) for shape in declared.shapes)
        due = {resolve(shape, dims): shape for shape in shapes}
        if isinstance(output := outputs.get(name), torch.Tensor) and tuple(output.shape) not in due:
            texts = " | ".join(f"tensor({', '.join(shape)})" for shape in shapes)
            used = dict.fromkeys(key for shape in shapes for text in shape for key in names(text))
            at = " at " + ", ".join(f"{key}={dims[key]}" for key in used) if used else ""
            what = f"declares {name!r} as {texts}, {' or '.join(map(str, due))}{at}"
            returned = f"the reference returns {tuple(output.shape)}"
            raise TargetError(f"target {target.name!r}: differentiable {what}; {returned}")


def check_cotangents_of(target: Target, call: Call) -> None:
    """The same for a call whose launcher raised: autograd raises for a cotangent that does not fit an output.

    What the reference says by itself about such a call is left to the cases that return.
    """
    if target.cotangents and target.reference is not None and call.elements() <= LARGEST_CALL:
        shapes = {name: value.shape for name, value in call.arguments.items()}
        try:
            outputs = evaluate_plain(target, shapes, call.dims, call.options)
        except TargetError:
            return
        check_cotangent_shapes(target, outputs, call.dims, call.options)


def noting_reference(target: Target) -> Target:
    """The target with a reference during which a worker's process notes what runs; where that leaves, it fails."""
    function = target.reference
    if function is None:
        return target

    @wraps(function)
    def reference(*arguments: Any, **named: Any) -> Mapping[str, Any]:
        with running(activity.REFERENCE):
            try:
                return function(*arguments, **named)
            except (SystemExit, KeyboardInterrupt) as error:
                raise ReferenceFailedError(f"target {target.name!r}: its reference fails: {one_line(error)}") from error

    return replace(target, reference=reference)


def probe_dims(target: Target) -> dict[str, int]:
    """Small sizes: 2, or the nearest ones."""
    return {dim.name: dim.clamp(max(dim.low, 2)) for dim in target.sizes}


def probe_reference(target: Target, chosen: Mapping[str, Scalar] = MappingProxyType({})) -> Mapping[str, torch.Tensor]:
    """The reference's outputs at small sizes, of ones, indices 0 and parts of equal lengths; empty without one.

    Options have their default where none is `chosen`.

    TargetError where it fails.
    """
    if target.reference is None:
        return {}
    options = {name: option.choices[0] for name, option in target.options.items()} | dict(chosen)
    shapes = {name: value.legal_shape(value.shape, options) for name, value in target.tensors.items()}
    return evaluate_plain(target, shapes, probe_dims(target), options)


def evaluate_plain(
    target: Target, shapes: Mapping[str, Shape], dims: Mapping[str, int], options: Mapping[str, Scalar]
) -> Mapping[str, torch.Tensor]:
    """What the reference returns of plain numbers in these shapes; tensors without one are None. Raises TargetError."""
    assert target.reference is not None
    inputs: dict[str, Any] = dict.fromkeys(target.tensors)
    try:
        for name, shape in shapes.items():
            numbers = target.tensors[name].plain_numbers(resolve(shape, dims), dims)
            inputs[name] = torch.from_numpy(numbers).to(reference_dtype(target.tensors[name].dtypes[0]))
    except (MemoryError, RuntimeError, ValueError) as error:
        raise TargetError(f"target {target.name!r}: no tensors can be made at {dims}: {one_line(error)}") from None
    inputs |= options
    inputs |= {name: dims[dim] for name, dim in target.passed_sizes.items()}
    try:
        with executing(REFERENCE, target.name):
            outputs: object = target.reference(**inputs)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise TargetError(f"target {target.name!r}: its reference fails at {dims}: {one_line(error)}") from error
    if not isinstance(outputs, Mapping):
        returned = type(outputs).__name__
        raise TargetError(f"target {target.name!r}: the reference returns {returned}, not a dict of tensors")
    return dict(outputs)
