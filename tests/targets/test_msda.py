"""The reference of deformable attention is torch's grid_sample, gradients too, and its locations lie where it turns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype, from_bits
from fuzz.model.recipes import generate, recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.target.arguments import option, size, tensor
from fuzz.target.legal import make_legal
from fuzz.target.loader import load
from fuzz.target.sampling_locations import ON_GRIDS, locations
from fuzz.target.spec import Target, declare

H, W, P = size("H", 1, 9), size("W", 1, 9), size("P", 1, 9)


def by_grid_sample(
    value: torch.Tensor, places: torch.Tensor, weights: torch.Tensor, padding: str, align: bool, *sides: int
) -> torch.Tensor:
    batch, _, heads, channels = value.shape
    queries, points = places.shape[1], places.shape[4]
    y = torch.zeros(())
    start = 0
    for level, (height, width) in enumerate((sides[:2], sides[2:])):
        cells = value[:, start : start + height * width].permute(0, 2, 3, 1)
        image = cells.reshape(batch * heads, channels, height, width)
        grid = (2 * places[:, :, :, level] - 1).transpose(1, 2).reshape(batch * heads, queries, points, 2)
        found = F.grid_sample(image, grid, padding_mode=padding, align_corners=align)
        weight = weights[:, :, :, level].transpose(1, 2).reshape(batch * heads, 1, queries, points)
        y = y + (found * weight).sum(-1).reshape(batch, heads, channels, queries).permute(0, 3, 1, 2)
        start += height * width
    return y


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align", [False, True])
def test_the_reference_is_grid_sample(padding: str, align: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    reference = load("msda").reference
    assert reference is not None
    for sides in ((3, 4, 2, 5), (1, 1, 1, 2), (6, 1, 3, 3)):
        cells = sides[0] * sides[1] + sides[2] * sides[3]
        made = [
            torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for shape in ((2, cells, 3, 5), (2, 6, 3, 2, 4, 2), (2, 6, 3, 2, 4))
        ]
        value, places, weights = made
        given = value, (places * 1.6 - 0.3), weights
        mine = reference(*given, padding, align, *sides)["y"]
        theirs = by_grid_sample(*given, padding, align, *sides)
        torch.testing.assert_close(mine, theirs)
        along = torch.rand(mine.shape, generator=generator, dtype=torch.float64)
        both = [torch.autograd.grad(y, made, along, retain_graph=True) for y in (mine, theirs)]
        for one, other in zip(*both, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("align", [0, 1])
def test_edges_are_where_the_neighbours_change_or_at_the_border(name: str, align: int) -> None:
    kind = dtype(name)
    sizes = dict(s0=5, s1=3, s2=8, s3=1)
    made = recipe("location_edges", 3, align=align, spread=0, levels=2, points=4, **sizes)
    found = from_bits(np.asarray(generate(made, (30, 2, 4, 2), kind)), kind).astype(np.float64)
    seen = set()
    for index in np.ndindex(found.shape):
        extent = (5, 3, 8, 1)[2 * index[1] + index[3]]
        place = found[index] * (extent - 1) if align else found[index] * extent - 0.5
        near = abs(place - round(place)) <= 2 * extent * kind.unit
        assert near or found[index] in (0.0, 1.0)
        seen.add((index[1], index[3], round(place)))
    assert {(0, 0, place) for place in range(5)} <= seen and (1, 0, 7) in seen


def test_a_spread_is_so_many_units_in_the_last_place_beside() -> None:
    kind = dtype("float32")
    words = [
        np.asarray(generate(recipe("location_edges", 3, spread=spread, s0=5, s1=3), (64, 2), kind)).astype(np.int64)
        for spread in (0, 2)
    ]
    steps = np.where(words[0] >> 31 == words[1] >> 31, words[1] - words[0], 0)
    assert set(np.unique(np.abs(steps))) == {0, 1, 2}


def test_outside_is_outside() -> None:
    kind = dtype("float32")
    found = from_bits(np.asarray(generate(recipe("location_outside", 3), (64, 2), kind)), kind)
    assert bool(((found <= 0) | (found >= 1)).all()) and found.min() < -1 and found.max() > 2


def made() -> Target:
    places = locations(P, 2, grids=((H, W),), align="align", signed=True)
    return declare(lambda x, places, align: dict(y=x), x=tensor(H, W), places=places, align=option(False, True))


def test_a_recipe_follows_sizes_and_options_while_a_case_changes() -> None:
    target = made()
    drawn = [RandomEngine(target, 1).case(number) for number in range(60)]
    assert {case.last.arguments["places"].values.name for case in drawn} >= set(ON_GRIDS)  # type: ignore[union-attr]
    x = Argument(("H", "W"), "float32", recipe("ones"))
    places = Argument(("P", "2"), "float32", recipe("location_edges", 5))
    call = Call({"H": 4, "W": 7, "P": 3}, {"x": x, "places": places}, {"align": True})
    values = make_legal(Case("t", (call,)), target).last.arguments["places"].values
    params = dict(values.params)  # type: ignore[union-attr]
    assert (params["s0"], params["s1"], params["align"], params["signed"], params["levels"]) == (7, 4, 1, 1, 1)


def test_what_cannot_be_locations_is_refused() -> None:
    with pytest.raises(TargetError, match="are floating, not int32"):
        locations(P, 2, grids=((H, W),), dtypes=("int32",))
    with pytest.raises(TargetError, match=r"of 2 grids have the shape \(.., 2, points, 2\)"):
        locations(P, 2, grids=((H, W), (H, W)))
    with pytest.raises(TargetError, match="aligned by 'other', which is no option"):
        declare(lambda places: {}, places=locations(P, 2, grids=((H, W),), align="other"), name="t")
