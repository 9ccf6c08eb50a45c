"""Adversarial inputs, and the ratio of an output's error to the bound that its envelope gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import Expected

KINDS = (
    "normal", "shifted", "constant", "constant rows", "exponents", "huge", "tiny", "subnormal", "cancelling", "ties",
    "sparse", "zero", "almost constant", "outliers", "integers",
)  # fmt: skip

Draw = Callable[..., Tensor]
Ratio = Callable[[Tensor, Expected], float]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: threads only cost."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of adversarial values."""
    return str(request.param)


def values(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """float32 values of one kind."""
    r = np.random.default_rng([seed, KINDS.index(kind)])
    x = r.standard_normal(shape)
    rows = r.standard_normal((shape[0], *(1,) * (len(shape) - 1)))
    made = {
        "normal": x, "shifted": x + 1000 * rows, "constant": np.full(shape, r.uniform(0.1, 9)),
        "constant rows": np.broadcast_to(rows * 37.7, shape), "exponents": x * 2.0 ** r.integers(-30, 30, shape),
        "huge": x * 2.0**120, "tiny": x * 2.0**-120, "subnormal": x * 2.0**-135,
        "ties": r.integers(-1, 2, shape) * 0.1, "sparse": x * (r.random(shape) < 0.1), "zero": x * 0,
        "almost constant": 100 + x * 1e-4, "outliers": x * np.where(r.random(shape) < 0.05, 1e4, 1.0),
        "integers": r.integers(-4, 5, shape), "cancelling": np.stack([x, -x * (1 + 1e-6)], -1).reshape(-1)[: x.size],
    }[kind]  # fmt: skip
    return torch.from_numpy(np.ascontiguousarray(np.asarray(made, dtype=np.float32).reshape(shape)))


@pytest.fixture
def draw() -> Draw:
    """values(kind, shape, seed)."""
    return values


def worst_ratio(out: Tensor, expected: Expected) -> float:
    """max |out - value| / (4*spread + half an ulp of float32 + smallest subnormal); inf where only one is finite."""
    value = expected.value.numpy()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rounded = value.astype(np.float32)
        got = out.to(torch.float64).numpy()
        half_ulp = 0.5 * np.nan_to_num(np.spacing(np.abs(rounded)).astype(np.float64), nan=2.0**104)
        bound = 4 * expected.spread.numpy() + half_ulp + 2.0**-149
        error = np.where((got == rounded) | (np.isnan(got) & np.isnan(value)), 0.0, np.abs(got - value))
        ratio = np.where((bound == np.inf) | (error == 0), 0.0, error / bound)
    return float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0))


@pytest.fixture
def ratio() -> Ratio:
    """The worst ratio of error to bound."""
    return worst_ratio
