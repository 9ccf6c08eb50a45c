"""A declared call of one of torch's operations, and what it returns at given sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch

from fuzz.model.dims import resolve

DTYPES = ("float32", "bfloat16", "float16")
TENSOR, LIST = "tensor", "list"
LARGEST_CALL = 1 << 20
"""Elements of the largest argument with which a declaration is tried."""


@dataclass(frozen=True)
class Declaration:
    """One call of an operation: the dotted name in torch, its arguments, shapes over dims, and its outputs' shapes.

    An argument is a number, a string, None, {"tensor": name} or {"list": arguments}. `outputs` holds the place of each
    floating output and its shape over the dims; `gradients` says that all of them can be differentiated.
    """

    name: str
    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    shapes: dict[str, list[str]]
    dims: dict[str, tuple[int, int]]
    outputs: dict[str, list[str]] = field(default_factory=dict)
    gradients: bool = False
    dtypes: tuple[str, ...] = DTYPES


def find_function(name: str) -> Callable[..., Any] | None:
    """The function of a dotted name below torch, or a method of its tensors; None where there is none."""
    for root in (torch, torch.Tensor):
        found = reduce(lambda place, part: getattr(place, part, None), name.split("."), root)
        if callable(found):
            return found
    return None


def rebuild(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A declared argument with its tensors in place."""
    if isinstance(value, dict):
        return tensors[value[TENSOR]] if TENSOR in value else [rebuild(one, tensors) for one in value[LIST]]
    return value


def apply(declaration: Declaration, function: Callable[..., Any], tensors: Mapping[str, torch.Tensor]) -> list[Any]:
    """The results of the call, as a list."""
    args = [rebuild(value, tensors) for value in declaration.args]
    kwargs = {name: rebuild(value, tensors) for name, value in declaration.kwargs.items()}
    result = function(*args, **kwargs)
    return list(result) if isinstance(result, tuple | list) else [result]


def attempt(
    declaration: Declaration,
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    transposed: bool = False,
    values: str = "random",
) -> list[Any] | None:
    """The results at these sizes, with the first dim the fastest in memory if `transposed`; None where refused.

    The values of the tensors are "random" between 0 and 1, "equal" to 0.5, or "normal" of a deviation of 8.
    """
    function = find_function(declaration.function)
    assert function is not None
    if any(math.prod(resolve(tuple(texts), sizes)) > LARGEST_CALL for texts in declaration.shapes.values()):
        return None
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.rand(resolve(tuple(texts), sizes), generator=generator).to(dtype)
        for name, texts in declaration.shapes.items()
    }
    if values == "normal":
        tensors = {
            name: torch.randn(value.shape, generator=generator).mul(8).to(dtype) for name, value in tensors.items()
        }
    if values == "equal":
        tensors = {name: torch.full_like(value, 0.5) for name, value in tensors.items()}
    if transposed:
        tensors = {name: reverse_dims(reverse_dims(value).contiguous()) for name, value in tensors.items()}
    tensors = {name: value.requires_grad_() for name, value in tensors.items()}
    try:
        return apply(declaration, function, tensors)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError):
        return None


def reverse_dims(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(tuple(reversed(range(tensor.dim()))))


def free_sizes(dims: Mapping[str, tuple[int, int]], sizes: tuple[int, ...]) -> dict[str, int]:
    """A size for each dim: one of these, each for itself as far as they reach, where the dim is free."""
    count = len(sizes)
    numbers = ((low, high, sizes[place % count] + place // count) for place, (low, high) in enumerate(dims.values()))
    return {dim: low if low == high else size for dim, (low, high, size) in zip(dims, numbers, strict=True)}
