"""Between which sizes of its dims the results of a declared call have the declared shapes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import partial
from random import Random

import torch

from benchmarks.honest.calls import Declaration, attempt, free_sizes
from fuzz.model.dims import resolve

SIZES = ((5, 7, 11, 13), (6, 4, 9, 10), (3, 8, 2, 12))
"""Sizes of the dims at which a call must work for them to be free."""
LARGEST = 1 << 16
"""Elements of the largest argument."""
LARGEST_RESULT = 4 * LARGEST


def free_dims(declaration: Declaration, sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Of each dim the least and the largest size: where the operation takes no other sizes, the sample's own."""
    free = set[str]()
    for place, dim in enumerate(sizes):
        taken = (attempt(declaration, sizes | {dim: other[place % 4]}, torch.float32) for other in SIZES)
        if all(one is not None for one in taken):
            free.add(dim)
    rank = max([sum(text in free for text in texts) for texts in declaration.shapes.values()], default=1)
    high = round(LARGEST ** (1 / max(rank, 1)))
    return {dim: (1, high) if dim in free else (size, size) for dim, size in sizes.items()}


def bound_dims(declaration: Declaration) -> dict[str, tuple[int, int]]:
    """The dims between the least and the largest sizes at which the results have the declared shapes.

    An index or an offset among the arguments needs a size, the end of a slice allows none beyond it, and a size of 1
    may be another case, as it is of squeeze. Results are of at most LARGEST_RESULT elements.
    """
    sizes, dims = free_sizes(declaration.dims, SIZES[0]), dict(declaration.dims)
    while largest_result(declaration, {dim: high for dim, (_, high) in dims.items()}) > LARGEST_RESULT:
        smaller = {dim: (low, max(high // 2, sizes[dim])) for dim, (low, high) in dims.items()}
        if smaller == dims:
            break
        dims = smaller
    for dim, (low, high) in dims.items():
        first = sizes[dim]
        beyond = range(first + 1, high + 1)
        fails = partial(lacks_shapes, declaration, sizes, dim)
        if beyond and fails(high):
            high = first + bisect_left(beyond, True, key=fails)
        while sizes[dim] > low and not fails(sizes[dim] - 1):
            sizes[dim] -= 1
        dims[dim] = (sizes[dim], high)
    return dims


def lacks_shapes(declaration: Declaration, sizes: Mapping[str, int], dim: str, size: int) -> bool:
    """Whether the results do not have the declared shapes at these sizes, with another one of a dim."""
    return not has_shapes(declaration, {**sizes, dim: size})


def has_shapes(declaration: Declaration, sizes: Mapping[str, int]) -> bool:
    """Whether the results at these sizes have the declared shapes."""
    results = attempt(declaration, sizes, torch.float32) or []
    shapes = {str(place): tuple(result.shape) for place, result in enumerate(results)}
    return all(shapes.get(place) == resolve(tuple(texts), sizes) for place, texts in declaration.outputs.items())


def largest_result(declaration: Declaration, sizes: Mapping[str, int]) -> int:
    """The elements of the largest result at these sizes."""
    return max(math.prod(resolve(tuple(texts), sizes)) for texts in declaration.outputs.values())


def has_shapes_within(declaration: Declaration) -> bool:
    """Whether results have the declared shapes at sizes of all dims within their bounds: the least, and drawn ones."""
    random, chosen = Random(0), [{dim: low for dim, (low, _) in declaration.dims.items()}]
    for most in (1, 4, 4, 32, 32, 32):
        chosen.append({d: random.randint(low, min(low + most, high)) for d, (low, high) in declaration.dims.items()})
    return all(has_shapes(declaration, sizes) for sizes in chosen)
