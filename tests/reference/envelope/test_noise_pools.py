"""NoisePools of noise: rows do not depend on who else is in a pool, and large pools are not kept for ever."""

from __future__ import annotations

import pytest
import torch

from fuzz.reference.envelope.noise_pools import (
    COLUMNS,
    FEW,
    MEMBERS,
    SPAN,
    UNUSED_STACKS,
    WINDOWS,
    NoisePool,
    NoisePools,
    NoiseTable,
    noise_on_device,
    window_strides,
)

CPU = torch.device("cpu")


def whole(pool: NoisePool) -> torch.Tensor:
    return pool.columns(0, 2 * SPAN)


def test_a_members_row_is_the_same_in_every_pool() -> None:
    pools = NoisePools()
    few, many = (whole(pools.get("relative", 1.0, ids, 2.0**-24, CPU)) for ids in ((9, 12), tuple(range(1, 40))))
    assert torch.equal(few[1], many[9]) and torch.equal(few[2], many[12]) and not many[0].any()


def test_a_table_grows_and_keeps_its_rows() -> None:
    table = NoiseTable()
    first = table.noise((-4, 1, 9), 5, 50)
    beyond = table.noise((-4, 1, 9, 3 * MEMBERS + 1), 5, 50)
    assert (first == beyond[:4]).all() and beyond[4].any() and not beyond[0].any()
    assert (table.noise((10,), 5, 50) == NoiseTable().noise((10,), 5, 50)).all()
    assert not table.noise((0,), 5, 50).any()


def test_large_pools_are_forgotten_when_nobody_asks_for_them() -> None:
    pools, ids = NoisePools(), tuple(range(1, FEW + 2))
    first = pools.get("tiny", 1.0, ids, 2.0**-24, CPU)
    for _ in range(UNUSED_STACKS):
        pools.start_stack()
    assert pools.get("tiny", 1.0, ids, 2.0**-24, CPU) is first
    for _ in range(UNUSED_STACKS + 1):
        pools.start_stack()
    assert not pools.large and torch.equal(whole(pools.get("tiny", 1.0, ids, 2.0**-24, CPU)), whole(first))


@pytest.mark.parametrize("kind", ["relative", "factor", "tiny"])
def test_columns_are_the_same_in_whatever_order_they_are_asked_for(kind: str) -> None:
    ids, pieces = (-1, 1, 2, 3, 9, 10), [(3, 4), (COLUMNS - 1, COLUMNS + 1), (2 * SPAN - 9, 2 * SPAN), (0, 9 * COLUMNS)]
    at_once = whole(NoisePool(kind, 1.5, ids, 2.0**-24, CPU))
    pool = NoisePool(kind, 1.5, ids, 2.0**-24, CPU)
    for start, stop in pieces:
        assert torch.equal(pool.columns(start, stop)[:, start:stop], at_once[:, start:stop])
    assert torch.equal(whole(pool), at_once)


@pytest.mark.parametrize("kind", ["relative", "factor", "tiny"])
def test_the_noise_of_a_device_has_the_bits_of_the_host(kind: str) -> None:
    ids = -1, 1, 2, 3, 9, 10
    pool = NoisePool(kind, 1 / 3, ids, 2.0**-24, CPU)
    on_device = pool.scale(noise_on_device(kind == "tiny", ids, CPU))
    assert torch.equal(on_device.view(torch.int64), whole(pool).view(torch.int64))


def test_cases_of_one_shape_share_views_of_a_pool_that_keeps_few_of_them() -> None:
    pool = NoisePool("factor", 1.5, (1, 2), 2.0**-24, CPU)
    shape, strides = (3, 2, 5), window_strides((2, 5))
    views = [pool.window(start, 10, shape, strides) for start in (7, 8, 7)]
    assert torch.equal(views[0], pool.columns(7, 17)[:, 7:17].view(shape)) and views[0] is views[2]
    for start in range(WINDOWS):
        pool.window(start, 10, shape, strides)
    assert len(pool._windows) <= WINDOWS
