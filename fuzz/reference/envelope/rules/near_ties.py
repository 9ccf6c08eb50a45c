"""Orders of elements that rounding may exchange: kernels sort by values that rounding has made equal, or turned.

Perturbed members exchange such elements by chance, and few members are few chances: of five experts with nearly the
same score one may never be the second. So every other member takes what may be equal for equal, and breaks the tie by
place: from the first or the last place on, then from each of these elements on in turn, upwards and downwards.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fuzz.reference.envelope.noise import MemberNoise


class RankedElements(NamedTuple):
    """Elements of rows of one replica by the rank that the unperturbed member gives them, (*rows, n) each.

    `order` are their places, `low` to `high` their values in all members, `value` those in the unperturbed one; from
    the rank `start` on there are `size` elements of which each may be equal to the next.
    """

    order: Tensor
    value: Tensor
    low: Tensor
    high: Tensor
    start: Tensor
    size: Tensor


def exchange_near_ties_(noise: MemberNoise, order: Tensor, values: Tensor, descending: bool) -> None:
    """Give every other member an order of its own of what rounding may exchange, in place.

    `order` (rows of the stack, *rows, k) are the places of the first k of n `values` (rows of the stack, *rows, n).
    """
    variants = [(row, noise.ids[row - 1] // 2) for row in noise.step_rows if noise.ids[row - 1] % 2 == 0]
    if not variants or not values.is_floating_point() or not values.numel():
        return
    signed, count = -values if descending else values, order.shape[-1]
    for first in range(0, noise.rows, noise.count):
        ranked = rank_elements(signed[[first, *(first + row for row in noise.step_rows)]])
        if ranked is not None:
            for row, variant in variants:
                order[first + row] = exchange(ranked, variant)[..., :count]


def rank_elements(members: Tensor) -> RankedElements | None:
    """What may be equal among elements (members, *rows, n) that are sorted upwards; None where nothing may."""
    order = torch.sort(members[0], stable=True).indices
    value, low, high = (t.gather(-1, order) for t in (members[0], members.amin(0), members.amax(0)))
    apart = ~(high.cummax(-1).values[..., :-1] > low[..., 1:])
    if bool(apart.all()):
        return None
    begins = torch.cat([torch.ones_like(order[..., :1], dtype=torch.bool), apart], -1)
    ranks = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    group = begins.cumsum(-1) - 1
    size = torch.zeros_like(order).scatter_add(-1, group, torch.ones_like(order)).gather(-1, group)
    return RankedElements(order, value, low, high, torch.where(begins, ranks, 0).cummax(-1).values, size)


def exchange(ranked: RankedElements, variant: int) -> Tensor:
    """The places of elements by rank where all are equal that may be equal to one of them: the variant says which."""
    order, (turn, downwards) = ranked.order, divmod(variant - 1, 2)
    pivot = ranked.start + (turn + ranked.size // 2) % ranked.size
    common = torch.minimum(torch.maximum(ranked.value.gather(-1, pivot), ranked.low), ranked.high)
    first = order.gather(-1, pivot) if turn else order.new_tensor(-downwards)
    places = torch.argsort((first - order if downwards else order - first) % order.shape[-1], dim=-1)
    return order.gather(-1, places.gather(-1, torch.sort(common.gather(-1, places), stable=True).indices))
