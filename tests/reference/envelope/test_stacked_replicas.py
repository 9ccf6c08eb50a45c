"""Replicas evaluated at once, integers among their arguments, get what each gets alone, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fuzz.reference.envelope import Divergence, Expected, evaluate, evaluate_backward, make_precision

CPU = make_precision("libm")
COUNT, M, N = 3, 4, 5


def assigned(x: Tensor, k: Tensor) -> Tensor:
    y = x * 2
    y[:, k] = x[:, :1]
    return y


Formula = Callable[[Tensor, Tensor, Tensor], Tensor]
FORMULAS: dict[str, Formula] = {
    "read rows": lambda x, k, j: x[k],
    "read columns": lambda x, k, j: x[:, k],
    "read elements": lambda x, k, j: x[k, k.flip(0)],
    "read elements of broadcast indices": lambda x, k, j: x[k.unsqueeze(1), k],
    "read by indices apart": lambda x, k, j: x.unsqueeze(1).expand(M, 2, N)[k, :, k],
    "read by a fixed index too": lambda x, k, j: x[k, torch.arange(M)],
    "read by a mask that all have": lambda x, k, j: x[k > -10],
    "read from the end": lambda x, k, j: x[k - M],
    "read nothing": lambda x, k, j: x.sum() + x[k[:0]].sum(),
    "index_select rows": lambda x, k, j: x.index_select(0, k),
    "index_select columns": lambda x, k, j: x.index_select(1, k),
    "index_select one": lambda x, k, j: x.index_select(1, k[0]),
    "index_select of constants": lambda x, k, j: x[0] * torch.linspace(0, 1, N).index_select(0, k).sum(),
    "embedding": lambda x, k, j: functional.embedding(j, x),
    "embedding of none": lambda x, k, j: x + functional.embedding(k[:0], x).sum(),
    "gather": lambda x, k, j: x.gather(1, j),
    "take_along_dim": lambda x, k, j: torch.take_along_dim(x, j, 1),
    "scatter": lambda x, k, j: (x * 2).scatter(1, j[:, :1], 1.5),
    "scatter of gradients": lambda x, k, j: torch.zeros(M, N).scatter(1, k.unsqueeze(1), x[:, 2:3]) * x,
    "scatter of one": lambda x, k, j: x[0].scatter(0, k[:1], x[1, 0].detach()) * x[1],
    "scatter_add of one": lambda x, k, j: x[0].scatter_add(0, k[:1], x[1, 0].detach()) * x[1],
    "scatter_add": lambda x, k, j: torch.zeros(M, N).scatter_add(1, j, x),
    "scatter_add, fewer": lambda x, k, j: torch.ones(M, N).scatter_add(1, j[:2], x.detach()) * x,
    "scatter_reduce": lambda x, k, j: x.scatter_reduce(1, j, x * 2, "amax"),
    "index_add rows": lambda x, k, j: torch.ones(M, N).index_add(0, k, x),
    "index_add columns": lambda x, k, j: torch.ones(M, N).index_add(1, k, x[:, :M] * 3, alpha=0.5),
    "index_add of integers": lambda x, k, j: x * torch.zeros(M, dtype=torch.int64).index_add(0, k, k).unsqueeze(1),
    "index_put": lambda x, k, j: torch.zeros(M, N).index_put((k,), x[0]),
    "index_put added": lambda x, k, j: torch.zeros(M, N).index_put((k, k), x[:, 0], True),
    "index_put added rows": lambda x, k, j: (x * 1.5).index_put((k,), x.sum(0), True),
    "columns assigned": lambda x, k, j: assigned(x, k),
    "written in place": lambda x, k, j: x.clone().index_add_(0, k, x),
    "compared": lambda x, k, j: torch.where(k.unsqueeze(1) > 1, x, 0.0) * (k != 2).sum(),
    "counted": lambda x, k, j: x.sum() / (k > 0).sum() * k.count_nonzero(),
    "promoted": lambda x, k, j: x * ((k.int() << 29) * k.amax()).unsqueeze(1),
    "in arithmetic": lambda x, k, j: x * (k * 3 // 2 % 5).unsqueeze(1) + k.to(torch.float64).mean() / 3,
    "summed": lambda x, k, j: x * k.cumsum(0).unsqueeze(1) / (1 + j.amax()),
    "one of each": lambda x, k, j: x * functional.one_hot(k, N),
    "cross entropy": lambda x, k, j: functional.cross_entropy(x, k, ignore_index=1, label_smoothing=0.1),
    "searched": lambda x, k, j: x * torch.searchsorted(torch.arange(9), k).unsqueeze(1),
}


def given(dtype: torch.dtype) -> dict[str, Tensor]:
    """x floating, k (M) and j (M, N) rows and columns of it, of COUNT replicas."""
    noise = torch.Generator().manual_seed(1)
    k = torch.randint(M, (COUNT, M), generator=noise, dtype=dtype)
    j = torch.randint(M, (COUNT, M, N), generator=noise, dtype=dtype)
    return dict(x=torch.randn(COUNT, M, N, generator=noise), k=k, j=j)


def same(one: Expected, other: Expected) -> bool:
    pairs = ((one.value, other.value), (one.spread, other.spread), (one.uncertainty, other.uncertainty))
    return all(a is b or torch.equal(a.nan_to_num(-1.0), b.nan_to_num(-1.0)) for a, b in pairs)  # type: ignore[union-attr]


def apart(expected: Expected, row: int) -> Expected:
    assert expected.uncertainty is not None
    return Expected(expected.value[row], expected.spread[row], expected.uncertainty[row])


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_each_gets_what_it_gets_alone(name: str, gradient: bool) -> None:
    formula, values = FORMULAS[name], given(torch.int64)

    def reference(x: Tensor, k: Tensor, j: Tensor) -> dict[str, Tensor]:
        return {"y": formula(x, k, j)}

    shape = evaluate(reference, {n: v[0] for n, v in values.items()}, CPU)["y"].value.shape
    heads = torch.randn(COUNT, *shape, generator=torch.Generator().manual_seed(2))

    def ask(inputs: dict[str, Any], head: Tensor, **how: Any) -> dict[str, Expected]:
        run: Any = partial(evaluate_backward, cotangents={"y": head}, wrt=["x"]) if gradient else evaluate
        found: dict[str, Expected] = run(reference, inputs, precision=CPU, **how)
        return found

    together = ask(values, heads, replicas=COUNT)
    for row in range(COUNT):
        alone = ask({n: v[row] for n, v in values.items()}, heads[row])
        assert all(same(apart(together[output], row), alone[output]) for output in alone)


def test_indices_of_32_bits() -> None:
    values = given(torch.int32)

    def reference(x: Tensor, k: Tensor, j: Tensor) -> dict[str, Tensor]:
        return {"y": torch.zeros(M, N).index_add(0, k, x) + x[k]}

    together = evaluate(reference, values, CPU, replicas=COUNT)["y"]
    for row in range(COUNT):
        assert same(apart(together, row), evaluate(reference, {n: v[row] for n, v in values.items()}, CPU)["y"])


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, k, j: functional.embedding(k - 1, x),
        lambda x, k, j: x.index_select(0, k - 1),
        lambda x, k, j: x.index_add(0, k[:1], x),
        lambda x, k, j: x.index_add(0, k, x[:, :2]),
    ],
)
@pytest.mark.parametrize("replicas", [None, COUNT])
def test_what_torch_refuses_is_refused(formula: Formula, replicas: int | None) -> None:
    values = {n: v if replicas else v[0] for n, v in given(torch.int64).items()}
    values["k"] = values["k"] * 0
    with pytest.raises((RuntimeError, IndexError)):
        evaluate(lambda x, k, j: {"y": formula(x, k, j)}, values, CPU, replicas=replicas)


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, k, j: x * int(k[0]),
        lambda x, k, j: x[k[0]],
        lambda x, k, j: x[k > 1],
        lambda x, k, j: x[k.nonzero().flatten()] * 2,
    ],
)
def test_replicas_part_where_an_integer_decides_that_they_do_not_share(formula: Formula) -> None:
    values = given(torch.int64)
    with pytest.raises(Divergence):
        evaluate(lambda x, k, j: {"y": formula(x, k, j)}, values, CPU, replicas=COUNT)
    values["k"] = values["k"][:1].expand(COUNT, -1).clone()
    stacked = evaluate(lambda x, k, j: {"y": formula(x, k, j)}, values, CPU, replicas=COUNT)["y"]
    for row in range(COUNT):
        one = {name: value[row] for name, value in values.items()}
        alone = evaluate(lambda x, k, j: {"y": formula(x, k, j)}, one, CPU)["y"]
        assert torch.equal(stacked.value[row], alone.value) and torch.equal(stacked.spread[row], alone.spread)


class OnDevice(torch.Tensor):
    """A tensor of a device that this machine need not have."""

    def cpu(self, *args: object) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor)


def test_the_part_of_one_replica_lies_on_the_host() -> None:
    stacked = torch.arange(6, dtype=torch.float64).view(3, 2)
    on_device = stacked.as_subclass(OnDevice)
    part = Expected(on_device, on_device, on_device).of_replica(1)
    for tensor in (part.value, part.spread, part.uncertainty):
        assert type(tensor) is torch.Tensor and tensor.tolist() == [2.0, 3.0]
