"""Ties: where torch promises which of equal elements it takes, members agree; where it does not, both ends are met."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision

CPU = make_precision("libm")
Formula = Callable[[Tensor], Tensor]
TIED, DISTINCT = torch.tensor([[0.0, 3.0, 0.0, 3.0, 3.0, 0.0]]), torch.tensor([[5.0, 3.0, 0.0, 4.0, 2.0, 1.0]])
FREE: Mapping[str, Formula] = {
    "topk": lambda x: x.topk(2, -1).indices,
    "smallest": lambda x: x.topk(2, -1, largest=False).indices,
    "sort": lambda x: x.sort(-1).indices,
    "argsort": lambda x: x.argsort(-1, descending=True),
    "kthvalue": lambda x: x.kthvalue(2, -1).indices,
    "median": lambda x: x.median(-1).indices,
    "nanmedian": lambda x: x.nanmedian(-1, True).indices,
    "mode": lambda x: x.mode(-1).indices,
}
PROMISED: Mapping[str, Formula] = {
    "argmax": lambda x: x.argmax(-1),
    "max": lambda x: x.max(-1).indices,
    "min": lambda x: x.min(-1).indices,
    "stable": lambda x: x.sort(stable=True).indices,
}


def spread(formula: Formula, x: Tensor, **options: int) -> Tensor:
    return evaluate(lambda x: {"y": formula(x)}, {"x": x}, CPU, **options)["y"].spread


@pytest.mark.parametrize("name", FREE)
def test_what_torch_does_not_promise_may_be_any_of_equal_elements(name: str) -> None:
    assert bool(spread(FREE[name], TIED).isinf().any())
    assert not bool(spread(FREE[name], DISTINCT).any())


@pytest.mark.parametrize("name", PROMISED)
def test_what_torch_promises_is_the_same_in_all_members(name: str) -> None:
    assert not bool(spread(PROMISED[name], TIED).any())


@pytest.mark.parametrize("formula", [lambda x: x.topk(3, -1).values, lambda x: x.sort(-1).values])
def test_values_are_the_same_whichever_is_taken(formula: Formula) -> None:
    assert not bool(spread(formula, TIED).any())


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: x.median(-1).values,
        lambda x: x.nanmedian(-1, True).values,
        lambda x: x.kthvalue(3, -1).values,
        lambda x: x.mode(-1).values,
        lambda x: torch.masked.median(x.flatten()),
    ],
    ids=["median", "nanmedian", "kthvalue", "mode", "masked median"],
)
def test_the_gradient_of_a_selection_may_be_of_any_of_equal_elements(formula: Formula) -> None:
    """CUDA's median of 18 zeros is their seventeenth."""

    def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
        seed = torch.full_like(formula(x), 3.0)
        out = evaluate_backward(lambda x: {"y": formula(x)}, {"x": x}, {"y": seed}, ["x"], CPU)["dx"]
        return out.value, out.spread

    equal = torch.zeros(1, 18)
    value, spread = gradient(equal)
    assert float(value.sum()) == 3.0
    assert bool((spread == 3.0).all())
    value, spread = gradient(torch.tensor([[5.0, 3.0, 0.0, 3.0, 2.0, 1.0, 3.0]]))
    assert not bool(spread[:, [0, 2, 4, 5]].any())
    assert bool(spread.any()) is (float(value[:, [1, 3, 6]].sum()) == 3.0)


def gate(x: Tensor) -> Tensor:
    """The weights of the two best of six experts."""
    top, index = x.topk(2, -1)
    return torch.zeros_like(x).scatter(-1, index, top.softmax(-1))


@pytest.mark.parametrize("members", [8, 20])
def test_a_gate_may_choose_the_first_of_equal_experts_or_the_last(members: int) -> None:
    expected = evaluate(lambda x: {"y": gate(x)}, {"x": torch.zeros(3, 6)}, CPU, members=members)["y"]
    for chosen in ((0, 1), (4, 5)):
        other = torch.zeros(3, 6, dtype=torch.float64)
        other[:, chosen] = 0.5
        assert bool(((other - expected.value).abs() <= expected.spread + 1e-6).all())


def test_a_gradient_goes_to_any_of_equal_elements() -> None:
    cotangent = torch.ones(1, 1)
    expected = evaluate_backward(lambda x: {"y": x.topk(1, -1).values}, {"x": TIED}, {"y": cotangent}, ["x"], CPU)["dx"]
    assert expected.spread[0, [1, 4]].tolist() == [1.0, 1.0] and not bool(expected.spread[0, [0, 2, 5]].any())


def test_replicas_have_their_own_ties() -> None:
    both = evaluate(lambda x: {"y": gate(x)}, {"x": torch.stack([torch.zeros(3, 6), torch.arange(18.0).view(3, 6)])},
                    CPU, replicas=2)["y"]  # fmt: skip
    assert bool((both.spread[0] > 0.4).any()) and float(both.spread[1].max()) < 1e-5


ROUNDED = torch.tensor([[0.3, 1.0, 0.2, 0.1, 0.25]])
"""Beside 2^31 all are the same in float32; by their exact values the second is the first."""


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("members", [20, 80])
def test_each_of_what_rounding_makes_equal_may_have_any_rank(descending: bool, members: int) -> None:
    def picked(rank: int, element: int) -> Formula:
        def formula(x: Tensor) -> Tensor:
            index = torch.sort(x + 2.0**31, stable=True, descending=descending).indices[..., rank]
            return (index == element).double()

        return formula

    if members == 80:
        assert all(spread(picked(rank, place), ROUNDED, members=members)[0] for rank in range(5) for place in range(5))
    by_place = [spread(picked(rank, rank), ROUNDED, members=members)[0] for rank in range(5)]
    assert all(by_place)


def test_what_rounding_cannot_exchange_keeps_its_rank_beside_what_it_can() -> None:
    x = torch.tensor([[4096.0, 0.3, 1.0, 0.2, -4096.0]])

    def last_and_first(x: Tensor) -> Tensor:
        return torch.sort(x + 2.0**31, stable=True).indices[..., [0, 4]]

    assert not bool(spread(last_and_first, x, members=80).any())
    assert bool(spread(lambda x: torch.topk(x + 2.0**31, 3, -1).indices[..., 1:], x, members=80).isinf().all())
