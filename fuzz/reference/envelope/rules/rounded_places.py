"""Defines rules of operations that compute a place and round it down: bins of a histogram, nearest pixels.

A number on the edge of two bins or pixels belongs to either one, by how a kernel rounds its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, map_members, wrap
from fuzz.reference.envelope.rules.elementwise import is_rounded_constant, rounding_constants
from fuzz.reference.envelope.rules.linear import apply_linear, nearest_terms

__all__ = ["register"]

NEAREST: Final = "upsample_nearest1d upsample_nearest2d _upsample_nearest_exact1d _upsample_nearest_exact2d"
MOST_PIXELS: Final = 2**24
"""float32 holds whole numbers up to this."""


def histogram(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """histc(x, bins, min, max): members that perturb steps round (x - min)*bins/(max - min), and count by that."""
    counts, noise = map_members(mode, func, args, kwargs), mode.noise
    rows, x = noise.rows_of(noise.step_rows), args[0].stacked.reshape(len(counts), -1)
    if not rows or not x.shape[1] or not counts.is_floating_point():
        return wrap(mode, counts)
    given = {"bins": 100, "min": 0, "max": 0, **dict(zip(("self", "bins", "min", "max"), args, strict=False)), **kwargs}
    bins, (low, high) = given["bins"], _range(mode, x, given["min"], given["max"])
    # Whole numbers in bins of whole width have exact places.
    place = noise.round_unless_integer((x - low) * bins / (high - low), 2.0 + 2 * noise.precision.error("div").base)
    inside = (x >= low) & (x <= high)
    chosen = torch.where(inside, noise.widen(place).floor().clamp(0, bins - 1), 0.0).long()
    counted = torch.zeros_like(counts).scatter_add_(1, chosen, inside.to(counts.dtype))
    counts[rows] = counted[rows]
    return wrap(mode, counts)


def _range(mode: EnsembleMode, x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """(rows, 1) of both ends: those given, as float32 holds them in some members, or else the extremes of numbers."""
    if low != high:
        ends = []
        for end in (low, high):
            some = x.new_full((len(x), 1), end)
            if is_rounded_constant(mode, float(end)):
                some[rounding_constants(mode.noise)] = some[:1].to(torch.float32).to(x.dtype)
            ends.append(some)
        return ends[0], ends[1]
    least, largest = x.amin(1, True), x.amax(1, True)
    apart = (least == largest).to(x.dtype)
    return least - apart, largest + apart


def nearest(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Nearest pixels (x, sizes, scales): any of `choices_of_pixels` in members that perturb steps."""
    t, x = map_members(mode, func, args, kwargs), args[0].stacked
    dims = x.dim() - 3
    choices = choices_of_pixels(func, x.shape[-dims:], t.shape[-dims:], args[1:], kwargs)
    for rows, pixels in _shared_out(mode, choices):
        t[rows] = x[rows].flatten(-dims)[..., pixels.to(x.device)].view(t[rows].shape)
    return wrap(mode, t)


def nearest_gradient(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient (g, sizes, sizes of x, scales): sums of what came from each pixel, by any of these choices.

    torch's own choice for a gradient is not always that of the forward.
    """
    out = apply_linear(nearest_terms)(mode, func, args, kwargs)
    forward = getattr(aten, func._schema.name.removeprefix("aten::").removesuffix("_backward")).default
    g, dims = args[0].stacked, len(args[1])
    inner = args[2][-dims:]
    choices = choices_of_pixels(forward, inner, g.shape[-dims:], (args[1], *args[3:]), kwargs)
    for rows, pixels in _shared_out(mode, choices):
        flat = g[rows].flatten(-dims)
        sums = flat.new_zeros(*flat.shape[:-1], math.prod(inner)).index_add_(-1, pixels.to(g.device), flat)
        out.stacked[rows] = sums.view(out.stacked[rows].shape)
    return out


def choices_of_pixels(
    func: OpOverload, inner: Sequence[int], outer: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Tensor]:
    """The different choices of nearest pixels, in flat order: torch's in float64 and float32, that of whole numbers.

    `args` are the sizes and scales; with a scale there is no ratio of whole numbers.
    """
    if not 0 < math.prod(inner) <= MOST_PIXELS:
        return []
    index = torch.arange(math.prod(inner)).view(1, 1, *inner)
    found = [func(index.to(kind), *args, **kwargs).long().flatten() for kind in (torch.float64, torch.float32)]
    if all(scale is None for scale in args[1:]):
        found.append(_pixels_of_whole_numbers(inner, outer, "exact" in func._schema.name))
    return [one for number, one in enumerate(found) if not any(torch.equal(one, other) for other in found[:number])]


def _shared_out(mode: EnsembleMode, choices: list[Tensor]) -> Iterator[tuple[list[int], Tensor]]:
    """The rows of members that perturb steps, for each of several choices; nothing where there is only one."""
    noise = mode.noise
    for number, choice in enumerate(choices) if len(choices) > 1 else ():
        rows = [row for row in noise.step_rows if noise.ids[row - 1] // 2 % len(choices) == number]
        if rows:
            yield noise.rows_of(rows), choice


def _pixels_of_whole_numbers(inner: Sequence[int], outer: Sequence[int], is_exact: bool) -> Tensor:
    """The nearest pixel of each, in flat order: floor(i*in/out) in each dim, or floor((i + 1/2)*in/out)."""
    flat = torch.zeros(1, dtype=torch.int64)
    for size, count in zip(inner, outer, strict=True):
        place = torch.arange(count)
        chosen = (2 * place + 1) * size // (2 * count) if is_exact else place * size // count
        flat = (flat.unsqueeze(-1) * size + chosen).flatten()
    return flat


def register() -> None:
    """State the rules of this module, in place of those that move or add up exact places."""
    RULES.register(histogram, "histc")
    RULES.register(nearest, *NEAREST.split())
    for name in NEAREST.split():
        RULES.register(nearest_gradient, f"{name}_backward")
