"""Interval arithmetic encloses the exact value of a reference, tightly, and refuses where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.errors import Unadjudicated
from fuzz.reference.envelope import COTANGENT, with_gradients
from fuzz.reference.exact import evaluate_exact
from fuzz.reference.interval import Interval, evaluate_intervals

SECONDS = 60.0
GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
W = torch.randn(6, 6, generator=GENERATOR, dtype=torch.float64)
IMAGE = torch.randn(1, 2, 5, 5, generator=GENERATOR, dtype=torch.float64)
FILTERS = torch.randn(3, 2, 2, 2, generator=GENERATOR, dtype=torch.float64)
MASK = torch.arange(24).view(4, 6) % 5 == 0

FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, w: x.sum(), "mean of rows": lambda x, w: x.mean(1), "cumsum": lambda x, w: x.cumsum(1),
    "prod": lambda x, w: x.prod(1), "matrix product": lambda x, w: x @ w, "linear": lambda x, w: F.linear(x, w, w[0]),
    "softmax": lambda x, w: torch.softmax(x * 9, 1), "log softmax": lambda x, w: torch.log_softmax(x, 1),
    "logsumexp": lambda x, w: torch.logsumexp(x, 1), "variance": lambda x, w: x.var(1),
    "layer norm": lambda x, w: F.layer_norm(x, (6,), w[0], w[1]), "norm": lambda x, w: x.norm(dim=1),
    "rms": lambda x, w: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5),
    "gelu": lambda x, w: F.gelu(x * 4), "gelu by tanh": lambda x, w: F.gelu(x, approximate="tanh"),
    "silu": lambda x, w: F.silu(x * 20), "sigmoid": lambda x, w: torch.sigmoid(x * 30),
    "tanh": lambda x, w: torch.tanh(x * x), "relu": lambda x, w: torch.relu(x @ w), "mish": lambda x, w: F.mish(x),
    "softplus": lambda x, w: F.softplus(x * 3), "elu": lambda x, w: F.elu(x), "hardswish": lambda x, w: F.hardswish(x),
    "exp and log": lambda x, w: torch.log1p(torch.exp(x)) + torch.expm1(x / 7) - torch.log((x * x) + 1),
    "root": lambda x, w: torch.sqrt(x.abs()) + x.abs() ** 1.5 + x**3 + x**-1, "sine": lambda x, w: torch.sin(x * w[0]),
    "clamp": lambda x, w: torch.clamp(x @ w, -1, 1), "maximum": lambda x, w: torch.maximum(x, w[:4] * 2),
    "max": lambda x, w: x.max(1).values + x.amin(0).sum(), "masked": lambda x, w: x.masked_fill(MASK, 3.0).sum(1),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w[None], w[None])[0],
    "masked softmax": lambda x, w: torch.softmax(x.masked_fill(MASK, float("-inf")), 1),
    "movement": lambda x, w: torch.cat([x.t(), F.pad(x, (1, 1, 2, 0)).flip(1)[:, :4]])[2:, 1:].roll(1, 0),
    "cross entropy": lambda x, w: F.cross_entropy(x, torch.tensor([0, 5, 2, 1])),
    "gather": lambda x, w: x.gather(1, torch.tensor([[1], [0], [5], [2]])),
    "threshold": lambda x, w: F.threshold(x, 0.1, 2.0), "distance": lambda x, w: (x - w[:4]).pow(2).sum(1),
    "in place": lambda x, w: torch.zeros(4, 6).add_(x).mul_(w[:4]).index_add(0, torch.tensor([1]), x[:1]),
    "leaky": lambda x, w: F.leaky_relu(x, 0.2) + F.hardtanh(x) + F.softsign(x),
    "outer": lambda x, w: torch.outer(x[0], w[0]),
    "addbmm": lambda x, w: torch.addbmm(w[0, :2], x.view(2, 2, 6), (x @ w).view(2, 6, 2), beta=0.5, alpha=2.0),
    "batch norm": lambda x, w: torch._native_batch_norm_legit(x, w[0], w[1], True, 0.1, 1e-5)[0],
}  # fmt: skip


def as_reference(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., dict[str, Tensor]]:
    return lambda x, w: {"y": formula(x, w)}


def intervals(formula: Callable[..., Tensor], **inputs: Any) -> Interval:
    return evaluate_intervals(lambda **given: {"y": formula(**given)}, inputs, seconds=SECONDS)["y"]


def check(found: Interval, exact: Any, tightness: float = 1e-12) -> None:
    """Each exact number lies in its interval, whose radius is small."""
    scale = float(found.mid.abs().max()) + 1e-300
    flat = zip(
        exact.reshape(-1).tolist(), found.mid.reshape(-1).tolist(), found.radius.reshape(-1).tolist(), strict=True
    )
    for true, mid, radius in flat:
        assert abs(true - mid) <= radius, (true, mid, radius)
        assert radius <= tightness * scale


@pytest.mark.parametrize("name", FORMULAS)
def test_the_exact_value_lies_within_the_interval(name: str) -> None:
    reference = as_reference(FORMULAS[name])
    exact = evaluate_exact(reference, {"x": X, "w": W}).values["y"]
    check(evaluate_intervals(reference, {"x": X, "w": W}, seconds=SECONDS)["y"], exact)


@pytest.mark.parametrize("name", ["softmax", "layer norm", "gelu", "silu", "matrix product", "cross entropy", "elu"])
def test_gradients_are_enclosed_as_well(name: str) -> None:
    joint = with_gradients(as_reference(FORMULAS[name]), ("y",), ["x", "w"])
    shape = FORMULAS[name](X, W).shape
    inputs = {"x": X, "w": W, COTANGENT + "y": torch.randn(shape, generator=GENERATOR, dtype=torch.float64)}
    exact = evaluate_exact(joint, inputs).values
    found = evaluate_intervals(joint, inputs, seconds=SECONDS)
    for gradient in ("dx", "dw"):
        check(found[gradient], exact[gradient])


def test_convolutions_are_enclosed() -> None:
    def unfolded(x: Tensor, w: Tensor) -> Tensor:
        x = F.pad(x, (1, 1, 1, 1))
        patches = torch.stack([x[0, :, i : i + 6, j : j + 6] for i in (0, 1) for j in (0, 1)], 1)
        return (w.reshape(3, -1) @ patches.reshape(8, 36)).view(1, 3, 6, 6)

    exact = evaluate_exact(as_reference(unfolded), {"x": IMAGE, "w": FILTERS}).values["y"]
    check(intervals(lambda x, w: F.conv2d(x, w, padding=1), x=IMAGE, w=FILTERS), exact)
    biased = intervals(lambda x, w: F.conv2d(x, w, torch.ones(3), padding=1) - 1.0, x=IMAGE, w=FILTERS)
    check(biased, exact)


def test_radii_grow_by_what_cancels() -> None:
    found = intervals(lambda x: (x + 2.0**60) - 2.0**60, x=torch.tensor([1.0, 3.0]))
    assert bool((found.radius >= (found.mid - torch.tensor([1.0, 3.0])).abs()).all()) and bool(
        (found.radius > 64).all()
    )


def test_a_sum_of_a_million_terms_is_known_to_ten_digits() -> None:
    x = torch.rand(1 << 20, generator=GENERATOR)
    found = intervals(lambda x: x.sum(), x=x)
    assert float(found.radius) < 1e-9 * float(found.mid)


def test_a_quotient_whose_divisor_may_be_zero_is_unknown() -> None:
    found = intervals(lambda x: 1.0 / ((x + 2.0**60) - 2.0**60), x=torch.zeros(1))
    assert float(found.radius) == float("inf")


def test_overflow_is_unknown_and_infinity_is_exact() -> None:
    assert float(intervals(lambda x: x * 1e308 * 1e308, x=torch.ones(())).radius) == float("inf")
    found = intervals(lambda x: x + 1, x=torch.tensor([float("-inf"), 1.0]))
    assert found.mid.tolist() == [float("-inf"), 2.0] and float(found.radius.max()) < 1e-15


def test_a_cast_rounds_both_ends() -> None:
    found = intervals(lambda x: (x / 3).to(torch.bfloat16).to(torch.float64), x=torch.ones(()))
    assert (float(found.mid), float(found.radius)) == (float(torch.tensor(1 / 3).bfloat16()), 0.0)


NARROW: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: (x.bfloat16() * x.bfloat16()).double(), "scaled": lambda x: (x.float() * 0.7).double(),
    "sum": lambda x: x.half().sum().double(), "in place": lambda x: x.float().mul_(0.7).double(),
    "norm": lambda x: torch.layer_norm(x.float(), (3,)).double(), "matrix product": lambda x: x.float() @ x.float(),
    "stored": lambda x: torch.zeros(3, dtype=torch.float32).copy_(x).double(),
    "added": lambda x: torch.ones(3, dtype=torch.bfloat16) + 0.1, "filled": lambda x: x.float().masked_fill(x > 0, 0.1),
    "selected": lambda x: torch.where(x > 0, x.bfloat16(), x.sum()).double(),
    "number of dims": lambda x: (x.bfloat16() * x.sum()).double(), "compared": lambda x: (x.half() > 0.1).double(),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_what_is_computed_in_a_narrower_format_is_refused(name: str) -> None:
    with pytest.raises(Unadjudicated, match="the reference (computes in|writes into|brings numbers into)"):
        intervals(NARROW[name], x=torch.tensor([2.7, 0.1, 0.3], dtype=torch.float64))


def test_what_is_cast_is_moved_compared_and_cast_back() -> None:
    x = torch.tensor([2.7, 0.1, -0.3], dtype=torch.float64)

    def formula(x: Tensor) -> Tensor:
        b = x.bfloat16()
        masked = torch.where(b > 0, b, 0.0).masked_fill(b == b[0], 1.0)
        moved = torch.cat([masked.flip(0), b[1:], torch.zeros_like(b)[:1]]).view(2, 3).t()
        return moved.double() * 0.7 + (b * x)[:2].sum() + b.sum(dtype=torch.float64) + b.float().double().mean()

    found = intervals(formula, x=x)
    assert bool(((found.mid - formula(x)).abs() <= found.radius + 1e-15).all()) and float(found.radius.max()) < 1e-12


def test_gradients_go_through_casts() -> None:
    joint = with_gradients(lambda x: {"y": x.bfloat16().double() * 0.7}, ("y",), ("x",))
    inputs = {"x": X, COTANGENT + "y": torch.ones_like(X)}
    found = evaluate_intervals(joint, inputs, seconds=SECONDS)
    assert torch.equal(found["dx"].mid, torch.full_like(X, 0.7).bfloat16().double())


def test_a_negative_factor_of_what_is_added_at_an_index_widens_the_radius() -> None:
    index = torch.tensor([0, 1, 0])
    found = intervals(lambda x: torch.zeros(2).index_add(0, index, x / 3, alpha=-1.5), x=torch.ones(3))
    assert bool((found.radius > 0).all()) and bool((found.radius < 1e-14).all())
    assert bool(((found.mid - torch.tensor([-1.0, -0.5])).abs() <= found.radius).all())


@pytest.mark.parametrize("formula", [
    lambda x: torch.where(x / 3 * 3 == x, x, 0.0),
    lambda x: x * (x / 3).argmax(),
    lambda x: x * float((x / 3).sum()),
    lambda x: torch.bernoulli(x),
    lambda x: torch.lgamma(x),
])  # fmt: skip
def test_what_is_too_close_or_has_no_rule_is_refused(formula: Callable[..., Tensor]) -> None:
    with pytest.raises(Unadjudicated):
        intervals(formula, x=torch.ones(3, dtype=torch.float64))


def test_the_time_ends() -> None:
    with pytest.raises(Unadjudicated, match="time"):
        evaluate_intervals(lambda x: {"y": x.exp()}, {"x": X}, seconds=-1.0)
