"""Pools of noise: rows do not depend on who else is in a pool, and large pools are not kept for ever."""

from __future__ import annotations

import torch

from fuzz.reference.envelope.pools import FEW, PATIENCE, Pools

CPU = torch.device("cpu")


def test_a_members_row_is_the_same_in_every_pool() -> None:
    pools = Pools()
    few, many = (pools.get("relative", 1.0, ids, 2.0**-24, CPU) for ids in ((9, 12), tuple(range(1, 40))))
    assert torch.equal(few[1], many[9]) and torch.equal(few[2], many[12]) and not many[0].any()


def test_large_pools_are_forgotten_when_nobody_asks_for_them() -> None:
    pools, ids = Pools(), tuple(range(FEW + 1))
    first = pools.get("tiny", 1.0, ids, 2.0**-24, CPU)
    for _ in range(PATIENCE):
        pools.start_stack()
    assert pools.get("tiny", 1.0, ids, 2.0**-24, CPU) is first
    for _ in range(PATIENCE + 1):
        pools.start_stack()
    assert not pools.large and torch.equal(pools.get("tiny", 1.0, ids, 2.0**-24, CPU), first)
