"""Exact values of ordinary torch operations are torch's own to 1e-12, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from formulas import FORWARD, NOT_DIFFERENTIABLE, inputs
from mpmath import mp, mpf
from torch import Tensor

from fuzz.errors import Unadjudicated
from fuzz.reference.envelope import COTANGENT, with_gradients
from fuzz.reference.exact import evaluate_exact
from fuzz.reference.exact.arithmetic import BINARY, UNARY

REFUSED = {
    "conv1d": "no rule for aten.convolution.default",
    "pooling": "no rule for aten.max_pool2d_with_indices.default",
    "interpolate": "no rule for aten.upsample_linear1d.default",
    "casts": "the reference casts to torch.float32",
}
"""Operations that are named, because they have no rule."""
SPECIAL = [0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-300, -1e-300, 40.0, -40.0, 710.0, -710.0, float("inf"),
           float("-inf"), float("nan")]  # fmt: skip


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def doubles(values: np.ndarray[Any, Any]) -> Tensor:
    return torch.tensor([float(v) for v in values.reshape(-1).tolist()]).view(values.shape)


def exactly(formula: Callable[..., Any], given: Mapping[str, Any], **limits: float) -> np.ndarray[Any, Any]:
    return evaluate_exact(lambda **x: {"y": formula(**x)}, given, **limits).values["y"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [n for n in FORWARD if n not in REFUSED])
def test_forward(name: str) -> None:
    formula, given = FORWARD[name], inputs()
    want = formula(given["x"].double(), given["w"].double())
    torch.testing.assert_close(doubles(exactly(formula, given)), want.double(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in FORWARD if n not in NOT_DIFFERENTIABLE and n not in REFUSED])
def test_backward(name: str) -> None:
    formula, given = FORWARD[name], inputs(1)
    x, w = (given[n].double().requires_grad_() for n in ("x", "w"))
    y = formula(x, w)
    cotangent = torch.linspace(-1, 1, y.numel()).view(y.shape)
    joint = with_gradients(lambda x, w: {"y": formula(x, w)}, ("y",), ("x", "w"))
    found = evaluate_exact(joint, {**given, COTANGENT + "y": cotangent}).values
    for key, g in zip(("dx", "dw"), torch.autograd.grad(y, [x, w], cotangent, allow_unused=True), strict=True):
        due = torch.zeros_like(x if key == "dx" else w) if g is None else g
        torch.testing.assert_close(doubles(found[key]), due.detach(), rtol=2e-12, atol=1e-13)


@pytest.mark.parametrize("name", REFUSED)
def test_an_operation_without_a_rule_is_named(name: str) -> None:
    with pytest.raises(Unadjudicated, match=REFUSED[name]):
        exactly(FORWARD[name], inputs())


@pytest.mark.parametrize("name", [*UNARY, "sign", "sgn", "relu"])
def test_functions_at_special_values_are_as_torch_has_them(name: str) -> None:
    """But for the sign of zero, which is not kept, overflow, which there is not, and functions that torch lacks."""
    function = getattr(torch.ops.aten, name)
    x = torch.tensor(SPECIAL)
    want = function(x)
    got = doubles(exactly(lambda x: function(x), {"x": x}))
    overflows = torch.isinf(want) & torch.isfinite(x) & (x.abs() >= 1e-300) & (x.abs() >= 40)
    # torch's sin(pi) is not zero, and its sigmoid(-710) is.
    least = 1e-16 if name == "sinc" else 1e-307
    torch.testing.assert_close(got[~overflows], want[~overflows], rtol=1e-12, atol=least, equal_nan=True)


@pytest.mark.parametrize("name", [*BINARY, "div", "maximum", "fmin", "add", "mul", "sub", "lt", "ge", "eq", "copysign"])
def test_functions_of_two_special_values_are_as_torch_has_them(name: str) -> None:
    function = getattr(torch, name)
    values = [v for v in SPECIAL if abs(v) not in (1e-300, 710.0)]
    x, y = torch.meshgrid(torch.tensor(values), torch.tensor(values), indexing="ij")
    want = function(x, y).double()
    got = doubles(np.asarray(exactly(lambda x, y: function(x, y), {"x": x, "y": y}, elements=1000)))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13, equal_nan=True)


def test_constants_of_gelu_do_not_limit_it() -> None:
    """x*Phi(x) and its derivative at 60 digits, forward and by autograd, from the plain torch function."""
    x = torch.tensor([-8.5, -3.0, 0.25, 5.0])
    joint = with_gradients(lambda x: {"y": F.gelu(x)}, ("y",), ("x",))
    found = evaluate_exact(joint, {"x": x, COTANGENT + "y": torch.ones(4)})
    with mpmath.workdps(found.digits):
        for place, v in enumerate(map(mpf, x.tolist())):
            cdf, pdf = mp.erfc(-v / mp.sqrt(2)) / 2, mp.npdf(v)
            for got, want in ((found.values["y"][place], v * cdf), (found.values["dx"][place], cdf + v * pdf)):
                assert abs(got - want) < mpf(10) ** -60 * abs(want)


def test_torchs_own_gradient_of_gelu_is_wrong_where_its_exact_value_is_not() -> None:
    """1.4 % at x = -8.5, through 1 + erf."""
    x = torch.tensor([-8.5], requires_grad=True)
    (torchs,) = torch.autograd.grad(F.gelu(x).sum(), [x])
    joint = with_gradients(lambda x: {"y": F.gelu(x)}, ("y",), ("x",))
    exact = evaluate_exact(joint, {"x": x.detach(), COTANGENT + "y": torch.ones(1)}).values["dx"][0]
    assert 0.013 < abs(float(torchs) / float(exact) - 1) < 0.015


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_derivatives_agree_with_numerical_ones(approximate: str) -> None:
    """mpmath differentiates the exact forward, which shares nothing with the backward formula."""
    joint = with_gradients(lambda x: {"y": F.gelu(x, approximate=approximate)}, ("y",), ("x",))
    found = evaluate_exact(joint, {"x": torch.tensor([-2.5]), COTANGENT + "y": torch.ones(1)})

    def forward(v: Any) -> Any:
        if approximate == "none":
            return v * mp.erfc(-v / mp.sqrt(2)) / 2
        return v / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (v + mpf(0.044715) * v**3)))

    with mpmath.workdps(80):
        assert abs(found.values["dx"][0] - mp.diff(forward, mpf(-2.5))) < mpf(10) ** -30


@pytest.mark.parametrize(
    ("formula", "derivative"),
    [
        (torch.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
        (torch.erfc, lambda x: -2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
        (torch.erfinv, lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2)),
        (torch.exp2, lambda x: mp.ln2 * mpf(2) ** x),
        (torch.log2, lambda x: 1 / (x * mp.ln2)),
        (torch.log10, lambda x: 1 / (x * mp.ln10)),
    ],
)
def test_constants_of_autograd_do_not_limit_it(formula: Callable[..., Tensor], derivative: Callable[..., Any]) -> None:
    joint = with_gradients(lambda x: {"y": formula(x)}, ("y",), ("x",))
    found = evaluate_exact(joint, {"x": torch.tensor([0.3]), COTANGENT + "y": torch.ones(1)})
    with mpmath.workdps(found.digits):
        want = derivative(mpf(0.3))
        assert abs(found.values["dx"][0] - want) < mpf(10) ** -60 * abs(want)


def test_attention_divides_by_an_exact_root() -> None:
    q, k, v = (torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(n)) for n in range(3))
    found = evaluate_exact(lambda q, k, v: {"y": F.scaled_dot_product_attention(q, k, v)}, dict(q=q, k=k, v=v))
    with mpmath.workdps(found.digits):
        q, k, v = ([[mpf(x) for x in row] for row in t[0].tolist()] for t in (q, k, v))  # type: ignore[assignment]
        for i in range(3):
            weights = [mp.exp(mp.fdot(q[i], k[j]) / mp.sqrt(5)) for j in range(3)]
            want = mp.fsum(w * v[j][0] for j, w in enumerate(weights)) / mp.fsum(weights)
            assert abs(found.values["y"][0, i, 0] - want) < mpf(10) ** -60


def test_whole_numbers_divide_exactly() -> None:
    y = exactly(lambda x: x + torch.arange(1, 4) / 3, {"x": torch.zeros(3)})
    with mpmath.workdps(60):
        assert abs(y[0] - mpf(1) / 3) < mpf(10) ** -50


def test_tensors_of_the_module_are_exact_too() -> None:
    table = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    mask = torch.tensor([True, False])

    def formula(x: Tensor) -> Tensor:
        rotated = torch.cat([table.view(4)[2:], -table.t()[0]]).exp()
        return (x @ table.T) * torch.softmax(table, -1)[:, 1] + rotated[:2] * mask + mask / 3

    x = torch.arange(6.0).view(3, 2)
    torch.testing.assert_close(doubles(exactly(formula, {"x": x})), formula(x), rtol=1e-14, atol=0)
    assert table.tolist() == [[0.1, 0.2], [0.3, 0.4]]


def test_writes_through_views_are_seen() -> None:
    def formula(x: Tensor) -> Tensor:
        y = x.clone()
        y[1:].view(-1)[::2].mul_(3)
        y.t().add_(1)
        y[0] = 7
        y.masked_fill_(y > 20, -1.0)
        y.unsqueeze_(0)
        return y

    x = torch.arange(12.0).view(4, 3)
    torch.testing.assert_close(doubles(exactly(formula, {"x": x})), formula(x))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_pixels_are_torchs(mode: str) -> None:
    x = torch.arange(1.0, 6.0).view(1, 1, 5)
    for size in range(2, 6):
        for more in ({"scale_factor": 3.0}, {"scale_factor": 0.7}, {"size": 7}, {"size": 4}):
            part = x[:, :, :size]
            wanted = F.interpolate(part, mode=mode, **more)  # type: ignore[arg-type]
            got = exactly(lambda x, more=more: F.interpolate(x, mode=mode, **more), {"x": part})
            assert torch.equal(doubles(got), wanted)
    square = torch.arange(1.0, 7.0).view(1, 1, 2, 3)
    got = exactly(lambda x: F.interpolate(x, scale_factor=(3.0, 1.5), mode=mode), {"x": square})
    assert torch.equal(doubles(got), F.interpolate(square, scale_factor=(3.0, 1.5), mode=mode))


def test_windows_are_moved_exactly() -> None:
    x = torch.arange(1.0, 17.0).view(1, 1, 4, 4)
    assert torch.equal(doubles(exactly(lambda x: F.unfold(x, 2, padding=1), {"x": x})), F.unfold(x, 2, padding=1))


def test_a_cast_to_bool_is_a_comparison_with_0() -> None:
    x = torch.tensor([0.0, 1.0, -2.0, 1e-300, float("nan")])
    found = evaluate_exact(lambda x: {"y": x.bool(), "z": torch.where((2 * x).to(torch.bool), 1.0, x)}, {"x": x}).values
    assert doubles(found["y"]).tolist() == [0, 1, 1, 1, 1] and doubles(found["z"]).tolist() == [0, 1, 1, 1, 1]


def exact_gradient(formula: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    def reference(x: Tensor) -> dict[str, Tensor]:
        x = x.detach().requires_grad_()
        y = formula(x)
        return {"y": torch.autograd.grad(y, x, torch.ones_like(y))[0]}

    return evaluate_exact(reference, {"x": x}).values["y"]


@pytest.mark.parametrize("name", ["cummax", "cummin", "gather", "scatter_add", "scatter_reduce"])
def test_numbers_without_dims_have_gradients(name: str) -> None:
    zero = torch.tensor(0)
    formulas: dict[str, Callable[[Tensor], Tensor]] = {
        "cummax": lambda x: x.cummax(0).values, "cummin": lambda x: x.cummin(0).values,
        "gather": lambda x: x.gather(0, zero), "scatter_add": lambda x: x.scatter_add(0, zero, x) / 2,
        "scatter_reduce": lambda x: x.scatter_reduce(0, zero, x, "sum") / 2,
    }  # fmt: skip
    assert float(exact_gradient(formulas[name], torch.tensor(1.5))) == 1


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_what_is_empty_is_sorted_and_has_signs(shape: tuple[int, ...]) -> None:
    sorts: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.sort(-1).values, lambda x: x.sort(0).values, lambda x: x.topk(0, -1).values, torch.msort,
        lambda x: x * x.argsort(-1), lambda x: x.cummax(-1).values, lambda x: x.cummin(0).values,
    ]  # fmt: skip
    for formula in sorts:
        assert evaluate_exact(lambda x, of=formula: {"y": of(x)}, {"x": torch.zeros(shape)}).values["y"].size == 0
    for function in (torch.abs, torch.sgn, torch.sign, F.softsign, lambda x: torch.copysign(x, x)):
        assert exact_gradient(function, torch.zeros(shape)).shape == shape
