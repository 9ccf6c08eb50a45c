"""Bounds of pools, scatters and convolutions count the terms of one element, and no more of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fuzz.reference.envelope import Expected, evaluate, make_precision

PRECISION = make_precision("libm")
MANY = torch.arange(65536) // 64
Formula = Callable[[torch.Tensor], torch.Tensor]


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5


def expected(formula: Callable[..., torch.Tensor], **inputs: torch.Tensor) -> Expected:
    return evaluate(lambda **given: dict(y=formula(**given)), inputs, PRECISION, members=20)["y"]


@pytest.mark.parametrize(
    ("formula", "shape", "most"),
    [
        (lambda x: F.avg_pool1d(x, 4), (1, 1, 65536), 2e-5),
        (lambda x: F.avg_pool2d(x, 2), (1, 4, 128, 128), 2e-5),
        (lambda x: F.avg_pool3d(x, (1, 2, 2)), (1, 2, 16, 32, 32), 2e-5),
        (lambda x: F.adaptive_avg_pool2d(x, (64, 32)), (1, 4, 128, 128), 5e-5),
        (lambda x: torch.zeros(1024, dtype=x.dtype).scatter_reduce(0, MANY, x, "sum"), (65536,), 5e-5),
        (lambda x: torch.zeros(1024, dtype=x.dtype).scatter_reduce(0, MANY, x, "mean"), (65536,), 5e-5),
        (lambda x: torch.ones(1024, dtype=x.dtype).scatter_reduce(0, MANY, x, "prod"), (65536,), 1e-4),
    ],
    ids=["avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive", "sum", "mean", "prod"],
)  # fmt: skip
def test_the_bound_does_not_grow_with_the_tensor(formula: Formula, shape: tuple[int, ...], most: float) -> None:
    x = positive(*shape) if len(shape) > 1 else 1 + 0.001 * positive(*shape)
    y = expected(formula, x=x)
    assert 0 < float((4 * y.spread / y.value.abs()).max()) < most
    assert bool(((formula(x.float()).double() - y.value).abs() <= 4 * y.spread + 1e-7 * y.value.abs()).all())


@pytest.mark.parametrize(
    ("mode", "shape"), [("linear", (3, 6, 93)), ("bilinear", (1, 3, 14, 21)), ("bicubic", (1, 3, 11, 6))]
)
def test_the_places_of_an_interpolation_are_rounded_too(mode: str, shape: tuple[int, ...]) -> None:
    x, size = positive(*shape), [20, 9][: len(shape) - 2]
    y = expected(lambda x: F.interpolate(x, size=size, mode=mode), x=x.float().double())
    got = F.interpolate(x.float(), size=size, mode=mode).double()
    assert bool(((got - y.value).abs() <= 4 * y.spread + 1e-7 * y.value.abs()).all())


def test_a_transposed_convolution_adds_up_the_channels_of_its_input() -> None:
    x, weight = torch.ones(1, 1024, 4, dtype=torch.float64), torch.full((1024, 1, 3), 0.1, dtype=torch.float64)
    y = expected(lambda x, weight: F.conv_transpose1d(x, weight), x=x, weight=weight)
    in_sequence = torch.zeros(())
    for _ in range(1024):
        in_sequence += torch.tensor(0.1)
    assert abs(float(in_sequence) - float(y.value[0, 0, 0])) < float(4 * y.spread[0, 0, 0])


def test_the_default_eps_of_an_rms_norm_is_that_of_the_kernels_dtype() -> None:
    x = 1e-3 * torch.randn(3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = expected(lambda x: F.rms_norm(x, (8,)), x=x.float().double())
    assert bool(((F.rms_norm(x.float(), (8,)).double() - y.value).abs() <= 4 * y.spread).all())
    assert torch.equal(torch.rms_norm(x, (8,)), F.rms_norm(x, (8,), eps=torch.finfo(torch.float64).eps))


def test_exponentials_of_whole_numbers() -> None:
    y = expected(lambda x: x * torch.exp(-torch.arange(4)) + torch.exp2(torch.arange(4)), x=positive(4))
    assert bool(torch.isfinite(y.value).all()) and 0 < float(y.spread.max()) < 1e-5


def test_the_corners_of_hardswish_are_torchs() -> None:
    x = torch.tensor([-4.0, -3.0, 0.0, 3.0, 4.0], dtype=torch.float64)
    y = expected(lambda x, g: torch.ops.aten.hardswish_backward(g, x), x=x, g=torch.ones_like(x))
    assert torch.equal(y.value, torch.ops.aten.hardswish_backward(torch.ones_like(x), x))


def test_the_diagonal_that_is_replaced_may_be_left_to_its_default() -> None:
    y = expected(lambda x: torch.diagonal_scatter(x, torch.zeros(3)), x=positive(3, 3))
    assert torch.equal(y.value.diagonal(), torch.zeros(3, dtype=torch.float64))


def test_what_an_outer_product_is_added_to_does_not_count_with_a_beta_of_0() -> None:
    nan = torch.full((3, 3), float("nan"), dtype=torch.float64)
    y = expected(lambda x: torch.addr(x, torch.ones(3), torch.ones(3), beta=0), x=nan)
    assert torch.equal(y.value, torch.ones(3, 3, dtype=torch.float64))


def test_sums_of_weights_are_rounded_and_counts_are_not() -> None:
    bins = torch.arange(1000) % 4
    y = expected(lambda x: torch.bincount(bins, weights=x, minlength=6), x=positive(1000))
    assert y.value.shape == (6,) and 1e-7 < float((4 * y.spread / y.value)[:4].max()) < 1e-4
    assert not bool(y.spread[4:].any())
    counts = expected(lambda x: x * torch.bincount(bins), x=torch.ones(4, dtype=torch.float64))
    assert counts.value.tolist() == [250.0] * 4


def gradient(formula: Formula) -> Callable[..., torch.Tensor]:
    """The gradient of a formula's argument, for a cotangent g."""

    def backward(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(formula(x), x, g)[0]

    return backward


WINDOWS: dict[str, tuple[Formula, tuple[int, ...]]] = {
    "nearest 1d": (lambda x: F.interpolate(x, size=5000, mode="nearest"), (1, 1, 1)),
    "nearest 2d": (lambda x: F.interpolate(x, size=(64, 64), mode="nearest"), (1, 1, 1, 1)),
    "exact": (lambda x: F.interpolate(x, size=(64, 64), mode="nearest-exact"), (1, 1, 1, 1)),
    "replicated": (lambda x: F.pad(x, (60, 60, 60, 60), mode="replicate"), (1, 1, 1, 1)),
    "reflected": (lambda x: F.pad(x, (4, 4, 4, 4), mode="reflect"), (1, 1, 5, 5)),
    "max pool": (lambda x: F.max_pool2d(x, 5, stride=1), (1, 1, 20, 20)),
    "dilated max pool": (lambda x: F.max_pool2d(x, [4], [4], dilation=4), (1, 1, 1 + 4 * 12, 1 + 4 * 12)),
    "adaptive max pool": (lambda x: F.adaptive_max_pool2d(x, (40, 40)), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_as_many_terms_meet_in_a_gradient_as_the_sizes_say(name: str) -> None:
    """Equal ones, which lose the most when they are added up one after another."""
    formula, shape = WINDOWS[name]
    x = positive(*shape).float().double()
    g = torch.full_like(formula(x), float(torch.tensor(0.1, dtype=torch.float32)))
    y = expected(gradient(formula), x=x, g=g)
    in_sequence = gradient(formula)(x.float(), g.float()).double()
    assert bool(((in_sequence - y.value).abs() <= 4 * y.spread + 1e-7 * y.value.abs()).all())
    assert float((4 * y.spread / y.value.abs().clamp(min=0.1)).max()) < 4e-7 * (g.numel() / x.numel() + 40)


@pytest.mark.parametrize(
    ("transposed", "groups", "shape", "most"),
    [
        (False, 64, (2, 64, 512), {"x": 1e-5, "weight": 1e-3, "bias": 1e-3}),
        (False, 1, (2, 8, 512), {"x": 1e-4, "weight": 1e-3, "bias": 1e-3}),
        (True, 1, (2, 8, 512), {"x": 1e-4, "weight": 1e-3, "bias": 1e-3}),
    ],
)
def test_gradients_of_a_convolution_add_up_as_many_products_as_they_have(
    transposed: bool, groups: int, shape: tuple[int, ...], most: dict[str, float]
) -> None:
    channels = shape[1]
    weight = positive(channels, channels // groups, 4)
    convolve = F.conv_transpose1d if transposed else F.conv1d

    def backward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> dict[str, torch.Tensor]:
        given = [value.detach().requires_grad_() for value in (x, weight, bias)]
        y = convolve(*given, groups=groups)
        return dict(zip(most, torch.autograd.grad(y, given, torch.full_like(y, 0.1)), strict=True))

    inputs = dict(x=positive(*shape), weight=weight, bias=positive(channels))
    found = evaluate(backward, {name: value.float().double() for name, value in inputs.items()}, PRECISION, members=20)
    got = backward(**{name: value.float() for name, value in inputs.items()})
    for name, y in found.items():
        assert bool(((got[name].double() - y.value).abs() <= 4 * y.spread + 1e-7 * y.value.abs()).all()), name
        assert float((4 * y.spread / y.value.abs()).max()) < most[name], name


@pytest.mark.parametrize("rows", [1, 64])
def test_a_running_logarithm_of_sums_rounds_once_for_each_element_before(rows: int) -> None:
    """However many rows there are; an error of 0.2 % of the sum is found."""
    x = torch.randn(rows, 2048, generator=torch.Generator().manual_seed(3), dtype=torch.float64).float().double()
    y = expected(lambda x: x.logcumsumexp(-1), x=x)
    assert float((4 * y.spread).max()) < 1.9e-3 and float((4 * y.spread[:, 0]).max()) < 1e-5
    far = torch.full((1, 2048), 1000.3, dtype=torch.float64).float()
    total, sequence = far[:, :1], [far[:, :1]]
    for place in range(1, 2048):
        total = torch.logaddexp(total, far[:, place : place + 1])
        sequence.append(total)
    y = expected(lambda x: x.logcumsumexp(-1), x=far.double())
    assert bool(((torch.cat(sequence, 1).double() - y.value).abs() <= 4 * y.spread + 1e-7 * y.value.abs()).all())
