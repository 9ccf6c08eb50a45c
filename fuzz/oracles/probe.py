"""Probe: what a target's reference returns, learnt by calling it once on tiny tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fuzz.dims import resolve
from fuzz.errors import TargetError, one_line
from fuzz.target import Target


def outputs(target: Target) -> Mapping[str, torch.Tensor]:
    """The reference's outputs at small sizes, all values 1; empty without a reference. TargetError where it fails."""
    if target.reference is None:
        return {}
    dims = {dim.name: dim.clamp(max(dim.low, 2)) for dim in target.sizes}
    inputs: dict[str, Any] = {
        name: torch.ones(resolve(value.shape, dims), dtype=torch.float64) for name, value in target.tensors.items()
    }
    inputs |= {name: option.choices[0] for name, option in target.options.items()}
    inputs |= {name: dims[name] for name in target.passed_sizes}
    try:
        return dict(target.reference(**inputs))
    except Exception as error:
        raise TargetError(f"target {target.name!r}: its reference fails at {dims}: {one_line(error)}") from error
