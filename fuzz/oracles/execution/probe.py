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
from fuzz.model.case import Scalar
from fuzz.model.dims import resolve
from fuzz.target.spec import Target
from fuzz.target_code import REFERENCE, executing
from fuzz.worker import activity
from fuzz.worker.child.serve import running

MOST_CHOICES = 64
"""Combinations of options for which a reference is called to learn which outputs there are."""
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
    check_cotangents(target, set(outputs))
    known = {*outputs, *target.cotangents, *(f"d{name}" for name in target.tensors if target.cotangents)}
    if outputs and not target.options and (unknown := sorted(target.rows.keys() - known)):
        names = ", ".join(unknown)
        raise TargetError(f"target {target.name!r}: rows= names {names}; there are {', '.join(sorted(known))}")
    return outputs


def check_cotangents(target: Target, returned: set[str]) -> None:
    """TargetError where `differentiable` names an output that the reference returns for no choice of its options.

    Its gradient would never be compared. `returned` are the outputs by default. Of more than MOST_CHOICES combinations
    none is tried.
    """
    choices = {name: option.choices for name, option in target.options.items()}
    if (
        target.reference is None
        or returned >= target.cotangents.keys()
        or prod(map(len, choices.values())) > MOST_CHOICES
    ):
        return
    for chosen in product(*choices.values()):
        try:
            returned |= set(probe_reference(target, dict(zip(choices, chosen, strict=True))))
        except TargetError:
            return  # Which choices go together, nobody knows.
    if unknown := sorted(target.cotangents.keys() - returned):
        names, known = ", ".join(unknown), ", ".join(sorted(returned))
        raise TargetError(f"target {target.name!r}: differentiable names {names}; the reference returns {known}")


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


def probe_reference(target: Target, chosen: Mapping[str, Scalar] = MappingProxyType({})) -> Mapping[str, torch.Tensor]:
    """The reference's outputs at small sizes, of ones, indices 0 and parts of equal lengths; empty without one.

    Options have their default where none is `chosen`.

    TargetError where it fails.
    """
    if target.reference is None:
        return {}
    dims = {dim.name: dim.clamp(max(dim.low, 2)) for dim in target.sizes}
    options = {name: option.choices[0] for name, option in target.options.items()} | dict(chosen)
    shapes = {name: resolve(value.legal_shape(value.shape, options), dims) for name, value in target.tensors.items()}
    try:
        inputs: dict[str, Any] = {
            name: torch.from_numpy(value.plain_numbers(shapes[name], dims)).to(reference_dtype(value.dtypes[0]))
            for name, value in target.tensors.items()
        }
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
