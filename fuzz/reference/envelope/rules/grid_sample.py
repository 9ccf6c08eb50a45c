"""Formula of the gradient of grid_sample, which torch does not decompose: bilinear, with zeros or border padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fuzz.reference.dispatch import NoRule
from fuzz.reference.envelope.ensemble import RULES

__all__ = ["FORMULAS", "register"]


def _source(x: Tensor, size: int, border: bool, align: bool) -> tuple[Tensor, Tensor]:
    """(position in pixels, its derivative) of a coordinate in [-1, 1]."""
    position = (x + 1) * (0.5 * (size - 1)) if align else ((x + 1) * size - 1) * 0.5
    slope = torch.full_like(x, 0.5 * (size - 1) if align else 0.5 * size)
    if border:
        slope = torch.where((position > 0) & (position < size - 1), slope, torch.zeros_like(slope))
        position = torch.clamp(position, 0, size - 1)
    return position, slope


def _weight(position: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """(the neighbour on one side, its weight): floor(position) weighs 1 - fraction."""
    low = torch.floor(position)
    return low + side, (position - low if side else (low + 1) - position)


def grid_sampler_2d_backward(
    g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Each of four neighbours gets g times its weight; the coordinate g times the differences of the neighbours."""
    if mode != 0 or padding == 2:
        raise NoRule("aten.grid_sampler_2d_backward: only bilinear, with zeros or border padding")
    n, c, h, w = x.shape
    ix, slope_x = _source(grid[..., 0], w, padding == 1, align)
    iy, slope_y = _source(grid[..., 1], h, padding == 1, align)
    planes = x.reshape(n, c, h * w)
    dx, along_x, along_y = torch.zeros_like(planes), torch.zeros_like(ix), torch.zeros_like(iy)
    for side_y in (0, 1):
        cy, weight_y = _weight(iy, side_y)
        for side_x in (0, 1):
            cx, weight_x = _weight(ix, side_x)
            inside = (cx >= 0) & (cx < w) & (cy >= 0) & (cy < h)
            position = torch.where(inside, cy.to(torch.int64) * w + cx.to(torch.int64), 0)
            position = position.reshape(n, 1, -1).expand(n, c, -1)
            part = torch.where(inside.unsqueeze(1), g * (weight_x * weight_y).unsqueeze(1), 0.0)
            dx = dx.scatter_add(2, position, part.reshape(n, c, -1))
            gathered = torch.where(inside, (g * planes.gather(2, position).view(g.shape)).sum(1), 0.0)
            along_x = along_x + gathered * weight_y * (2 * side_x - 1)
            along_y = along_y + gathered * weight_x * (2 * side_y - 1)
    return dx.view(x.shape) if mask[0] else None, torch.stack([along_x * slope_x, along_y * slope_y], -1)


FORMULAS = {"grid_sampler_2d_backward": grid_sampler_2d_backward}


def register() -> None:
    """State the rules of this module."""
    RULES.register_formulas(FORMULAS)
