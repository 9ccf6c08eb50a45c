"""Numbers on the edge of two bins or pixels may belong to either one; elsewhere each belongs to one alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn
from torch import Tensor

from fuzz.reference.envelope import Expected, evaluate, evaluate_backward, make_precision

CPU = make_precision("libm")
TENTHS = torch.arange(1, 10) * 0.1
KINDS = (torch.float32, torch.float64)
NORMAL = torch.from_numpy(np.random.default_rng(2).standard_normal(3000).astype(np.float32))


def histogram(x: Tensor, *options: Any) -> Expected:
    return evaluate(lambda x: {"y": torch.histc(x, *options)}, {"x": x}, CPU, members=20)["y"]


def test_an_edge_of_bins_belongs_to_either(ratio: Any) -> None:
    by_product = torch.zeros(10).index_add(0, (TENTHS * 10).long(), torch.ones(9))
    for ends, counts in (((0, 1), by_product), ((0, 1), torch.histc(TENTHS, 10, 0, 1))):
        y = histogram(TENTHS, 10, *ends)
        assert ratio(counts, y) <= 1 < ratio(counts + 9.0, y)
    assert ratio(torch.histc(TENTHS, 8, 0.1, 0.9), histogram(TENTHS, 8, 0.1, 0.9)) <= 1


@pytest.mark.parametrize("ends", [(-3, 3), (0, 0), (-0.7, 1.3)])
def test_counts_away_from_edges_are_exact(ends: tuple[float, float], ratio: Any) -> None:
    y, counts = histogram(NORMAL, 50, *ends), torch.histc(NORMAL, 50, *ends)
    assert ratio(counts, y) <= 1 < ratio(counts + torch.eye(50)[25], y)
    if any(ends):
        assert ratio(torch.histc(NORMAL.clamp(*ends), 50, *ends), y) > 1


def test_whole_numbers_have_exact_bins(ratio: Any) -> None:
    x = torch.arange(9.0)
    y = histogram(x, 8, 0, 8)
    assert float(y.spread.max()) == 0.0 and ratio(torch.histc(x, 8, 0, 8), y) == 0.0
    assert ratio(torch.ones(8), y) > 1  # The last bin has both its ends.
    assert ratio(torch.histc(torch.ones(5), 4), histogram(torch.ones(5), 4)) == 0.0


@pytest.mark.parametrize("x", [torch.tensor(0.3), torch.zeros(0), torch.zeros(2, 0)], ids=["no dims", "empty", "rows"])
def test_a_histogram_of_one_number_or_none(x: Tensor, ratio: Any) -> None:
    assert ratio(torch.histc(x, 5, -1, 1), histogram(x, 5, -1, 1)) == 0.0


def pixels_of_whole_numbers(size: int, count: int, mode: str) -> Tensor:
    place = torch.arange(count)
    return (2 * place + 1) * size // (2 * count) if mode == "nearest-exact" else place * size // count


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_either_of_two_nearest_pixels(mode: str, ratio: Any) -> None:
    differing = 0
    for size, count in ((2, 82), (2, 61), (7, 115), (49, 98), (5, 10), (13, 39), (39, 13)):
        resize = partial(nn.interpolate, size=count, mode=mode)
        x = NORMAL[: 3 * size].view(1, 3, size)
        y = evaluate(lambda x, resize=resize: {"y": resize(x)}, {"x": x}, CPU, members=20)["y"]
        other = x[..., pixels_of_whole_numbers(size, count, mode)]
        differing += not torch.equal(resize(x).double(), y.value) or not torch.equal(other.double(), y.value)
        assert ratio(resize(x), y) <= 1 and ratio(other, y) <= 1
        assert ratio(resize(x).roll(1, -1), y) > 1 and ratio(other * (1 + 2.0**-18), y) > 1
    assert differing


def test_gradients_of_either_pixel(ratio: Any) -> None:
    size, count = 2, 82
    x, g = NORMAL[: 3 * size].view(1, 3, size), NORMAL[: 3 * count].view(1, 3, count)
    resize = partial(nn.interpolate, size=count, mode="nearest")
    found = evaluate_backward(lambda x: {"y": resize(x)}, {"x": x}, {"y": g}, ["x"], CPU, members=20)["dx"]
    single, double = (resize(torch.arange(size, dtype=kind).view(1, 1, size)).long().flatten() for kind in KINDS)
    assert not torch.equal(single, double)
    for pixels in (single, double):
        right = torch.zeros_like(x).index_add(-1, pixels, g)
        assert ratio(right, found) <= 1 < ratio(right + 10 * g.abs().max(), found)
