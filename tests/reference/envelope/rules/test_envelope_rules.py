"""References made of ordinary torch operations: value as torch computes it, a spread of working precision's size."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from formulas import FORWARD, NOT_DIFFERENTIABLE, inputs

from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision
from fuzz.reference.exact import evaluate_exact
from fuzz.reference.interval import evaluate_intervals

CPU = make_precision("libm")


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """torch's own value in float64 throughout, as `evaluate` arranges it."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    """The value is torch's, and the spread of the size of float32."""
    formula, given = FORWARD[name], inputs()
    out = evaluate(lambda x, w: {"y": formula(x, w)}, given, CPU)["y"]
    want = formula(given["x"].double(), given["w"].double())
    assert out.value.shape == want.shape and out.spread.shape == want.shape
    torch.testing.assert_close(out.value, want.double(), rtol=1e-11, atol=1e-13)
    assert out.uncertainty is not None
    assert float(out.spread.max()) < 1e-4 and float(out.uncertainty.max()) < 1e-12
    assert float(out.spread.max()) > 1e-9


@pytest.mark.parametrize("name", [n for n in FORWARD if n not in NOT_DIFFERENTIABLE])
def test_backward(name: str) -> None:
    """The same of gradients by autograd."""
    formula, given = FORWARD[name], inputs(1)
    x, w = (given[n].double().requires_grad_() for n in ("x", "w"))
    y = formula(x, w)
    cotangent = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape)
    out = evaluate_backward(lambda x, w: {"y": formula(x, w)}, given, {"y": cotangent}, ["x", "w"], CPU)
    for key, g in zip(("dx", "dw"), torch.autograd.grad(y, [x, w], cotangent, allow_unused=True), strict=True):
        assert g is not None or not bool(out[key].value.any())
        if g is not None:
            torch.testing.assert_close(out[key].value, g, rtol=1e-10, atol=1e-12)
            assert math.isfinite(float(out[key].spread.max())) and float(out[key].spread.max()) < 1e-3


@pytest.mark.parametrize("shape", [(4, 0), (0, 4), (0,)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "sum"])
def test_shares_of_no_elements_are_those_of_torch(name: str, shape: tuple[int, ...]) -> None:
    """As of an empty sequence; by members, exactly and by intervals, and with gradients."""

    def reference(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": getattr(torch, name)(x, -1)}

    given = {"x": torch.zeros(shape)}
    want = reference(given["x"].double())["y"]
    out = evaluate_backward(reference, given, {"y": torch.ones_like(want)}, ("x",), CPU)
    assert torch.equal(out["y"].value, want) and out["dx"].value.shape == shape
    exact = evaluate_exact(reference, given).values["y"]
    assert exact.shape == want.shape and [float(one) for one in exact.reshape(-1)] == want.reshape(-1).tolist()
    if want.isfinite().all():
        assert torch.equal(evaluate_intervals(reference, given, seconds=9.0)["y"].mid, want)
