"""Linear recurrences h[t] = a[t]*h[t-1] + b[t]: what products of their gates lose where these underflow.

A scan by the associative law multiplies gates with each other before the state: (a2*a1)*h0 + (a2*b1 + b2). It rounds as
the loop does, but for the range: a product of gates below the normal numbers is off by up to an underflow unit, by
which a state or the sum of a block is multiplied. The loop has no such product.

A recurrence is recognised by what a reference does: a product is added to something, the sum is a factor of a product,
and that is added to something again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from fuzz.reference.envelope.noise import MemberNoise

__all__ = ["MOST_ELEMENTS", "ElementwiseProduct", "Recurrence", "take_step"]

LEAST: Final = 1e-300
"""Products of gates are taken as no smaller, so that float64 does not lose them."""
MOST_ELEMENTS: Final = 2**22
"""The factors of products with more elements, of all members, are not kept."""


class ElementwiseProduct(NamedTuple):
    """The factors of a product as they broadcast: stacked, the same in all members, or numbers; which are states."""

    factors: tuple[Any, ...]
    states: tuple[Recurrence | None, Recurrence | None]


class Start(NamedTuple):
    """A stacked sum with products among its terms. Which factor is the gate shows where the sum is multiplied."""

    products: tuple[ElementwiseProduct, ...]
    state: Tensor
    steps: int = 1


class Chain(NamedTuple):
    """The state after two steps or more; all tensors are (replicas, *shape).

    smallest: the least magnitude of a product of the last gate with any number of those before it. multiplied: the
    largest magnitude of a state, or of the sum of a block, that such a product multiplies; 0 where a gate was 0 since.
    majorant: the same recurrence of magnitudes, which no sum of a block exceeds.
    """

    smallest: Tensor
    multiplied: Tensor
    majorant: Tensor
    steps: int


Recurrence = Start | Chain


def take_step(
    noise: MemberNoise, t: Tensor, terms: Sequence[Any], products: Sequence[ElementwiseProduct | None]
) -> Recurrence:
    """The recurrence of t (rows, *shape), a sum of two terms, stacked or not, with the product that each is, if any.

    Perturbs t by what products of gates lose that underflow.
    """
    steps = [
        (state.steps, term, place)
        for term, product in enumerate(products)
        for place, state in enumerate(product.states if product else ())
        if state is not None and _shape(state) == t.shape[1:]
    ]
    if not steps:
        return Start(tuple(product for product in products if product), t)
    _, term, place = max(steps)
    product = products[term]
    assert product is not None
    state = product.states[place]
    assert state is not None
    chain, gate = _resolve(noise, state, place), _magnitude(noise, product.factors[1 - place], t)
    pair, multiplied = gate * chain.smallest, torch.maximum(chain.multiplied, chain.majorant)
    smallest = torch.minimum(gate, pair)
    majorant = torch.addcmul(_magnitude(noise, terms[1 - term], t), gate, chain.majorant)
    if pair.numel() and not float(pair.amin()) >= noise.precision.smallest_normal:
        zero = gate == 0
        underflows = (pair < noise.precision.smallest_normal) & ~zero
        noise.lose_(t, torch.where(underflows, chain.multiplied, 0.0))
        smallest = torch.where(zero, 1.0, smallest.clamp_(min=LEAST))
        multiplied = torch.where(zero, 0.0, multiplied)
    return Chain(smallest, multiplied, majorant, chain.steps + 1)


def _magnitude(noise: MemberNoise, x: Any, t: Tensor) -> Tensor:
    """Magnitudes of an operand of t in the first member of each replica. It is stacked if it has as many dims as t."""
    if not isinstance(x, Tensor):
        return torch.tensor(abs(float(x)), dtype=torch.float64, device=t.device)
    first = noise.first_members(x) if x.dim() == t.dim() else x
    return (first if first.dtype is torch.float64 else first.to(torch.float64)).abs()


def _shape(state: Recurrence) -> torch.Size:
    """The logical shape of a state."""
    return (state.state if isinstance(state, Start) else state.majorant).shape[1:]


def _resolve(noise: MemberNoise, recurrence: Recurrence, place: int) -> Chain:
    """The chain of one step, whose state is the factor at `place` of a product; longer ones as they are."""
    if isinstance(recurrence, Chain):
        return recurrence
    size = _magnitude(noise, recurrence.state, recurrence.state)
    smallest, multiplied, majorant = torch.full_like(size, torch.inf), torch.zeros_like(size), size
    for product in recurrence.products:
        gate = _magnitude(noise, product.factors[1 - place], recurrence.state)
        start = _magnitude(noise, product.factors[place], recurrence.state)
        zero = gate == 0
        smallest = torch.where(zero, smallest, torch.minimum(smallest, gate))
        multiplied = torch.where(zero, multiplied, torch.maximum(multiplied, start))
        majorant = majorant + gate * start
    return Chain(smallest.clamp_(LEAST, 1 / LEAST), multiplied, majorant, 1)
