"""Sums at indices have the bounds that sums of the same terms have: atomics in any order are inside, wrong rows not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.reference.envelope import Expected, evaluate, evaluate_backward, make_precision
from fuzz.reference.envelope.rules import indexing

CPU = make_precision("libm")
TERMS = {
    "normal": lambda r, n: r.standard_normal(n),
    "positive": lambda r, n: r.random(n),
    "equal": lambda r, n: np.full(n, 0.1),
    "cancelling": lambda r, n: np.where(np.arange(n) % 2, -1, 1) * 1e4 + r.standard_normal(n),
    "two sizes": lambda r, n: np.where(np.arange(n) < n // 2, 0.1, 1000.0),
    "mixed sizes": lambda r, n: np.where(r.random(n) < 0.9, 0.1, 777.7),
    "exponents": lambda r, n: r.standard_normal(n) * 2.0 ** r.integers(-20, 20, n),
}


def in_sequence(terms: Tensor, index: Tensor, rows: int) -> Tensor:
    """Atomics, one term after another."""
    sums = np.zeros(rows, np.float32)
    np.add.at(sums, index.numpy(), terms.numpy())
    return torch.from_numpy(sums)


def in_blocks(terms: Tensor, index: Tensor, rows: int) -> Tensor:
    """Blocks of 64 that each add their own sums to the whole."""
    parts = [in_sequence(terms[at : at + 64], index[at : at + 64], rows) for at in range(0, len(terms), 64)]
    return in_sequence(torch.cat(parts), torch.arange(rows).repeat(len(parts)), rows)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("kind", TERMS)
def test_atomics_in_any_order_are_inside(kind: str, rows: int, ratio: Any) -> None:
    r = np.random.default_rng(3)
    terms, index = torch.from_numpy(TERMS[kind](r, 4096)).float(), torch.from_numpy(r.integers(0, rows, 4096))
    start = torch.zeros(rows, dtype=torch.float64)
    y = evaluate(lambda t: {"y": start.index_add(0, index, t)}, {"t": terms}, CPU, members=80)["y"]
    orders = [torch.from_numpy(r.permutation(4096)) for _ in range(6)] + [torch.arange(4096), torch.argsort(index)]
    for order in orders:
        assert ratio(in_sequence(terms[order], index[order], rows), y) < 0.5
        assert ratio(in_blocks(terms[order], index[order], rows), y) < 0.5
    assert ratio(torch.stack([terms[index == row].sum() for row in range(rows)]), y) < 0.5


VALUES = {
    "columns": lambda n: torch.tensor([0.3, 0.7]).repeat(n),
    "at random": lambda n: torch.where(torch.rand(2 * n, generator=torch.Generator().manual_seed(7)) < 0.5, 0.3, 0.7),
    "few large": lambda n: torch.where(torch.rand(2 * n, generator=torch.Generator().manual_seed(1)) < 0.01, 1e4, 0.1),
    "three": lambda n: torch.tensor([0.1, 0.2, 0.7]).repeat(n)[: 2 * n],
    "of two signs": lambda n: torch.tensor([0.3, -0.1, 0.3]).repeat(n)[: 2 * n],
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("n", [2000, 10_000, 50_000])
def test_few_values_are_inside_in_whatever_order_they_come(kind: str, n: int, ratio: Any) -> None:
    terms, index = VALUES[kind](n), torch.zeros(2 * n, dtype=torch.int64)
    start = torch.zeros(1, dtype=torch.float64)
    y = evaluate(lambda t: {"y": start.index_add(0, index, t)}, {"t": terms}, CPU, members=80)["y"]
    r = np.random.default_rng(3)
    turns = torch.arange(2 * n).view(n, 2).T.reshape(-1)
    blocks = torch.argsort(terms, stable=True).view(-1, 50)[torch.from_numpy(r.permutation(n // 25))].reshape(-1)
    for order in (
        turns,
        terms.argsort(),
        terms.argsort(descending=True),
        blocks,
        torch.from_numpy(r.permutation(2 * n)),
    ):
        assert ratio(in_sequence(terms[order], index, 1), y) < 0.75


def test_sums_that_are_exact_in_any_order_have_narrow_bounds_however_often_terms_repeat(ratio: Any) -> None:
    terms, index = torch.ones(5000), torch.zeros(5000, dtype=torch.int64)
    y = evaluate(lambda t: {"y": torch.zeros(1).double().index_add(0, index, t)}, {"t": terms}, CPU, members=80)["y"]
    assert float(4 * y.spread / y.value) < 2e-6 and ratio(torch.tensor([5000.0 * (1 + 2**-18)]), y) > 1


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_repeated_terms_with_one_that_is_not_finite_stay_as_they_are(value: float) -> None:
    terms, index = torch.full((300,), 0.1), torch.arange(300) % 2
    terms[200] = value
    y = evaluate(lambda t: {"y": torch.zeros(2).double().index_add(0, index, t)}, {"t": terms}, CPU, members=80)["y"]
    assert torch.equal(y.value[:1].nan_to_num(7.0), torch.tensor([value]).double().nan_to_num(7.0))
    assert not y.spread[0] and 0 < y.spread[1] < 1e-3


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("members", [4, 8, 80])
def test_sums_of_what_a_reference_casts_are_measured(kind: torch.dtype, members: int, ratio: Any) -> None:
    index = torch.tensor([0, 0, 1])

    def reference(x: Tensor) -> dict[str, Tensor]:
        cast = x.to(kind)
        return {
            "index_add": cast.index_add(0, index, cast),
            "scatter_add": cast.scatter_add(0, index, cast),
            "index_put": cast.index_put([index], cast, accumulate=True),
            "scatter_reduce": cast.scatter_reduce(0, index, cast, "mean"),
        }

    x = torch.tensor([0.5, -1.25, 3.0])
    y, right = evaluate(reference, {"x": x}, CPU, members=members), reference(x)
    assert all(ratio(right[name].float(), y[name]) <= 1 for name in right)
    gradients = {
        "index": lambda x: x.to(kind)[index].double(),
        "gather": lambda x: x.to(kind).gather(0, index).double(),
        "embedding": lambda x: F.embedding(index, x.to(kind).view(3, 1)).double().view(3),
    }
    for name, formula in gradients.items():
        found = evaluate_backward(
            lambda x, of=formula: {"y": of(x)}, {"x": x}, {"y": torch.full((3,), 0.5)}, ["x"], CPU, members=members
        )
        assert found["dx"].value.tolist() == [1.0, 0.5, 0.0], name


def test_many_terms_are_not_sorted_but_taken_as_atomics_add_equal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluated(n: int) -> float:
        terms, index = torch.rand(n, generator=torch.Generator().manual_seed(5)), torch.zeros(n, dtype=torch.int64)
        y = evaluate(lambda t: {"y": torch.zeros(1).double().index_add(0, index, t)}, {"t": terms}, CPU, members=80)
        return float(y["y"].spread / y["y"].value)

    measured = evaluated(4095)
    monkeypatch.setattr(indexing, "LARGEST_SCATTER", 4095)
    assert evaluated(4095) > 10 * measured
    assert evaluated(4094) < 2 * measured


def of_embedding(g: Tensor, index: Tensor) -> Expected:
    def reference(weight: Tensor) -> dict[str, Tensor]:
        return {"y": F.embedding(index, weight)}

    return evaluate_backward(reference, {"weight": torch.zeros(3, 4)}, {"y": g}, ["weight"], CPU, members=80)["dweight"]


def of(formula: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Expected]:
    def expected(g: Tensor, index: Tensor) -> Expected:
        def reference(x: Tensor, g: Tensor) -> dict[str, Tensor]:
            return {"y": formula(x, index, g)}

        return evaluate(reference, {"x": torch.zeros(3, 4), "g": g}, CPU, members=80)["y"]

    return expected


SCATTERS: dict[str, Callable[[Tensor, Tensor], Expected]] = {
    "embedding": of_embedding,
    "index_add": of(lambda x, index, g: x.index_add(0, index, g)),
    "index_add of products": of(lambda x, index, g: x.index_add(0, index, g, alpha=1.0)),
    "scatter_add": of(lambda x, index, g: x.scatter_add(0, index[:, None].expand_as(g), g)),
    "index_put": of(lambda x, index, g: x.index_put([index], g, accumulate=True)),
    "scatter_reduce": of(lambda x, index, g: x.scatter_reduce(0, index[:, None].expand_as(g), g, "sum")),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_a_row_of_many_terms_that_is_off_is_outside(name: str, ratio: Any) -> None:
    g = torch.randn(4096, 4, generator=torch.Generator().manual_seed(2))
    index = torch.zeros(4096, dtype=torch.int64)
    index[:2] = torch.tensor([1, 2])
    y = SCATTERS[name](g, index)
    right = torch.zeros(3, 4).index_add(0, index, g)
    assert ratio(right, y) < 0.5
    wrong = right.clone()
    wrong[0] *= 1.005
    assert ratio(wrong, y) > 1
    assert float((4 * y.spread / y.value.abs()).median()) < 1e-3


@pytest.mark.parametrize("own", [True, False])
def test_means_are_measured_as_sums_are(own: bool, ratio: Any) -> None:
    x, terms = torch.full((2,), 1e3), torch.randn(4096, generator=torch.Generator().manual_seed(4)) + 0.1
    index = torch.arange(4096) % 2
    inputs = {"x": x, "t": terms}
    y = evaluate(lambda x, t: {"y": x.scatter_reduce(0, index, t, "mean", include_self=own)}, inputs, CPU, members=80)[
        "y"
    ]
    right = (in_sequence(terms, index, 2) + (x if own else 0)) / (2049 if own else 2048)
    assert ratio(right, y) < 0.6
    assert ratio(right * 1.001, y) > 1


def test_scalars_masks_and_broadcast_values_are_added_up() -> None:
    x = torch.ones(3, dtype=torch.float64)

    def reference(x: Tensor) -> dict[str, Tensor]:
        zero = torch.tensor(0)
        return {
            "scalar": x.sum().scatter_add(0, zero, x[0]) + x.sum().index_add(0, zero, x[0]),
            "mask": x.index_put([x > 0], x[:1], accumulate=True),
            "broadcast": x.index_put([torch.tensor([0, 0, -1])], x[0] * 0.1, accumulate=True),
            "matrix": torch.ops.aten.index_put(x.expand(2, 3), [None, torch.tensor([1, 1])], x[:1] * 0.1, True),
        }

    found = evaluate(reference, {"x": x}, CPU, members=20)
    assert found["scalar"].value.item() == 8 and found["mask"].value.tolist() == [2, 2, 2]
    assert found["broadcast"].value.tolist() == pytest.approx([1.2, 1, 1.1])
    assert found["matrix"].value[1].tolist() == pytest.approx([1, 1.2, 1]) and float(found["matrix"].spread.max()) > 0
