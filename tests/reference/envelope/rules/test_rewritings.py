"""Other formulas of functions, and constants that float32 does not hold, are inside the bounds; wrong ones are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")
Array = np.ndarray[Any, Any]
F = np.float32
Formula = Callable[..., Any]

X = np.concatenate([np.linspace(-19, 19, 400), np.geomspace(1e-12, 1, 100), -np.geomspace(1e-12, 1, 100)]).astype(F)
Y = np.random.default_rng(7).permutation(X)
UNIT = np.linspace(0, 1, len(X), dtype=F)
PROBABILITY = np.concatenate([np.geomspace(1e-9, 0.5, 300), 1 - np.geomspace(1e-6, 0.5, 300)]).astype(F)


def error(formula: Formula, kernel: Formula, ratio: Any, *inputs: Array, factor: float = 1.0) -> float:
    """Error over bound of a kernel, whose results are multiplied with a factor."""
    named = {f"x{number}": torch.from_numpy(np.ascontiguousarray(x)) for number, x in enumerate(inputs)}
    expected = evaluate(lambda **given: {"y": formula(*given.values())}, named, CPU, members=80)["y"]
    with np.errstate(all="ignore"):
        got = (kernel(*inputs) * F(factor)).astype(F)
    return float(ratio(torch.as_tensor(got), expected))


def binary_cross_entropy(x: Array, y: Array) -> Array:
    return np.maximum(x, F(0)) - x * y + np.log1p(np.exp(-np.abs(x)))


REWRITTEN: dict[str, tuple[Formula, Formula, tuple[Array, ...]]] = {
    "hardsigmoid": (nn.hardsigmoid, lambda x: np.clip(x / F(6) + F(0.5), F(0), F(1)), (X,)),
    "hardswish": (nn.hardswish, lambda x: x * np.clip(x * F(1 / 6) + F(0.5), F(0), F(1)), (X,)),
    "binary cross entropy": (
        lambda x, y: nn.binary_cross_entropy_with_logits(x, y, reduction="none"), binary_cross_entropy, (X, UNIT)
    ),
    "binary cross entropy of probabilities": (
        lambda p, y: nn.binary_cross_entropy(p, y, reduction="none"),
        lambda p, y: -(y * np.log(p) + (F(1) - y) * np.log(F(1) - p)), (PROBABILITY, np.round(UNIT))
    ),
    "acosh": (torch.acosh, lambda x: np.log(x + np.sqrt(x * x - F(1))), (1 + np.abs(X),)),
    "acosh by factors": (torch.acosh, lambda x: np.log(x + np.sqrt((x - F(1)) * (x + F(1)))), (1 + np.abs(X),)),
    "logaddexp": (
        torch.logaddexp, lambda x, y: np.maximum(x, y) + np.log(F(1) + np.exp(-np.abs(x - y))), (X, Y)
    ),
    "sinh": (torch.sinh, lambda x: F(0.5) * (np.exp(x) - np.exp(-x)), (X,)),
    "asinh": (torch.asinh, lambda x: np.sign(x) * np.log(np.abs(x) + np.sqrt(x * x + F(1))), (X,)),
    "atanh": (torch.atanh, lambda x: F(0.5) * np.log((F(1) + x) / (F(1) - x)), (X / F(20),)),
    "lerp": (lambda x, y, w: torch.lerp(x, y, w), lambda x, y, w: (F(1) - w) * x + w * y, (X, Y, 10 * UNIT)),
    "pow": (lambda x: x.abs() ** 1.5, lambda x: np.exp2(F(1.5) * np.log2(np.abs(x))), (1000 * X,)),
    "pow of a tensor": (
        lambda x, y: x.abs() ** y, lambda x, y: np.exp2(y * np.log2(np.abs(x))), (X, Y)
    ),
    "power of 10": (lambda x: 10.0**x, lambda x: np.exp2(x * F(math.log2(10))), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", REWRITTEN)
def test_usual_rewritings_are_inside(name: str, ratio: Any) -> None:
    formula, kernel, inputs = REWRITTEN[name]
    assert error(formula, kernel, ratio, *inputs) <= 1
    assert error(formula, kernel, ratio, *inputs, factor=1 + 2.0**-14) > 1


def test_results_that_are_not_small_are_known_to_2_to_the_minus_18(ratio: Any) -> None:
    def losses(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.binary_cross_entropy(p, y, reduction="none")

    def exactly(formula: Formula, *inputs: Array) -> Array:
        return np.asarray(formula(*(torch.from_numpy(x.copy()).double() for x in inputs)))

    labels = np.round(UNIT[50:300][::-1])
    for formula, inputs in ((torch.acosh, (np.linspace(1.5, 9, 50, dtype=F),)), (losses, (UNIT[50:300], labels))):
        right = partial(exactly, formula)
        assert error(formula, right, ratio, *inputs) <= 1 < error(formula, right, ratio, *inputs, factor=1 + 2.0**-18)


INTERPOLATIONS: dict[str, Formula] = {
    "gate first": lambda z, x, y: (1 - z) * x + z * y,
    "gate last": lambda z, x, y: y * z + x * (1.0 - z),
    "gate of a row": lambda z, x, y: (1 - z[:, None]) * x + z[:, None] * y[:, None].expand(len(z), 4),
}


@pytest.mark.parametrize("name", INTERPOLATIONS)
def test_an_interpolation_may_round_the_difference(name: str, ratio: Any) -> None:
    """By x + z*(y - x), where z is near 1 and y is small. Errors of 2^-18 are found, and a z that is another one's."""
    formula, spread = INTERPOLATIONS[name], name == "gate of a row"
    z, y = (1 - np.geomspace(1e-6, 1, 60)).astype(F), np.geomspace(1e-5, 1, 60).astype(F)
    x = np.full(4 if spread else 60, 0.7, F)

    def kernel(z: Array, x: Array, y: Array) -> Array:
        return x + z[:, None] * (y[:, None] - x) if spread else x + z * (y - x)

    assert error(formula, kernel, ratio, z, x, y) <= 1
    assert error(formula, kernel, ratio, z, x, y, factor=1 + 2.0**-18) > 1
    assert error(formula, lambda z, x, y: kernel(np.roll(z, 1), x, y), ratio, z, x, y) > 1


def test_a_sum_of_other_products_has_no_interpolation(ratio: Any) -> None:
    z, y = (1 - np.geomspace(1e-6, 1, 60)).astype(F), np.geomspace(1e-5, 1, 60).astype(F)
    formula = lambda z, w, y: (1 - z) * 0.75 + w * y  # noqa: E731
    assert error(formula, lambda z, w, y: F(0.75) + w * (y - F(0.75)), ratio, z, z, y) > 1


def test_asinh_of_negative_numbers_is_odd(ratio: Any) -> None:
    x = -np.geomspace(1e-3, 1e3, 50, dtype=F)
    assert error(torch.asinh, lambda x: np.log(x + np.sqrt(x * x + F(1))), ratio, x) > 1
    assert error(torch.asinh, lambda x: -np.log(-x + np.sqrt(x * x + F(1))), ratio, x) <= 1


def test_reduced_losses_of_probabilities(ratio: Any) -> None:
    p, y = torch.from_numpy(UNIT[50:-50]), torch.from_numpy(UNIT[50:-50][::-1].copy())
    inputs = {"p": p, "y": y, "w": 10 * y}

    def loss(p: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": nn.binary_cross_entropy(p, y), "w": nn.binary_cross_entropy(p, y, w, reduction="sum")}

    found, right = evaluate(loss, inputs, CPU, members=20), loss(**inputs)
    for name, one in found.items():
        assert ratio(right[name], one) <= 1 < ratio(right[name] * (1 + 2.0**-14), one)


@pytest.mark.parametrize("name", ["pow", "power of 2", "logcumsumexp"])
def test_large_results_have_a_bound(name: str) -> None:
    formula, x = {
        "pow": (lambda x: x**1.5, 1e25), "power of 2": (lambda x: 2.0**x, 122.0),
        "logcumsumexp": (lambda x: x.logcumsumexp(0), 1e38),
    }[name]  # fmt: skip
    y = evaluate(lambda x: {"y": formula(x)}, {"x": torch.full((2,), x)}, CPU, members=80)["y"]
    assert bool((y.spread <= 1e-3 * y.value).all())


def test_a_constant_beyond_the_range_of_float32_is_taken_as_it_is() -> None:
    def masked(x: torch.Tensor) -> dict[str, torch.Tensor]:
        least = torch.finfo(torch.float64).min
        filled = x.masked_fill(x == x, least), torch.where(x == x, least, x), torch.full_like(x, least)
        return {f"y{number}": torch.softmax(one, -1) for number, one in enumerate(filled)}

    found = evaluate(masked, {"x": torch.ones(2, 5)}, CPU, members=40)
    assert all(
        float(y.spread.max()) < 1e-6 and torch.equal(y.value, torch.full_like(y.value, 0.2)) for y in found.values()
    )


def test_an_operand_may_be_a_plain_tensor(ratio: Any) -> None:
    for function in (torch.logaddexp, torch.logaddexp2):
        ramp = lambda x, function=function: function(torch.arange(5.0), x)  # noqa: E731
        assert error(ramp, lambda x, ramp=ramp: ramp(torch.from_numpy(x)).numpy(), ratio, X[:5]) <= 1


def test_small_integer_powers_are_products(ratio: Any) -> None:
    by_logarithm = lambda x: np.copysign(np.exp2(F(3) * np.log2(np.abs(x))), x)  # noqa: E731
    assert error(lambda x: x**3, by_logarithm, ratio, 1000 * X) > 1


def test_a_reversed_running_sum_is_no_difference_of_sums(ratio: Any) -> None:
    x = np.random.default_rng(3).standard_normal((4, 300)).astype(F)
    reverse = lambda x: x.flip(-1).cumsum(-1).flip(-1)  # noqa: E731
    assert error(reverse, lambda x: np.add.accumulate(x[:, ::-1], axis=1)[:, ::-1], ratio, x) <= 1
    assert error(reverse, lambda x: x.sum(1, keepdims=True) - np.add.accumulate(x, axis=1) + x, ratio, x) > 1


CONSTANTS: dict[str, tuple[Formula, Formula, Array]] = {
    "remainder": (lambda x: x % 0.1, lambda x: torch.from_numpy(x) % float(F(0.1)), X),
    "fmod": (lambda x: torch.fmod(x, 2 * math.pi), lambda x: np.fmod(x, F(2 * math.pi)), X),
    "clamp": (
        lambda p: -torch.log(1 - p.clamp(1e-6, 1 - 1e-6)), lambda p: -np.log(F(1) - np.clip(p, F(1e-6), F(1 - 1e-6))),
        UNIT,
    ),
    "where": (
        lambda x: 1 / (1 - torch.where(x > 0, 0.999, 0.5)), lambda x: F(1) / (F(1) - np.where(x > 0, F(0.999), F(0.5))),
        X,
    ),
    "masked_fill": (
        lambda x: 1 / (1 - torch.zeros_like(x).masked_fill(x > 0, 0.999)),
        lambda x: F(1) / (F(1) - np.where(x > 0, F(0.999), F(0))), X,
    ),
    "full": (
        lambda x: 1 / (1 - torch.full_like(x, 0.999) + 0 * x), lambda x: 0 * x + F(1) / (F(1) - F(0.999)), X
    ),
    "comparison": (
        lambda x: torch.where(x > 0.1, x, 0.0), lambda x: np.where(x > F(0.1), x, F(0)), np.append(X, F(0.1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_may_be_those_of_float32(name: str, ratio: Any) -> None:
    formula, kernel, x = CONSTANTS[name]
    rounded = lambda x: np.asarray(kernel(x))  # noqa: E731
    exactly = lambda x: np.asarray(formula(torch.from_numpy(x).double()), dtype=F)  # noqa: E731
    for one in (rounded, exactly):
        assert error(formula, one, ratio, x) <= 1
        assert error(formula, one, ratio, x, factor=1.01) > 1


RAMPS: dict[str, tuple[Formula, Formula]] = {
    "linspace": (
        lambda x: x + torch.linspace(-1, 2, 31), lambda x: x + (F(-1) + np.arange(31, dtype=F) * F(3 / 30))
    ),
    "to 0": (lambda x: x + torch.linspace(-1, 0, 31), lambda x: x + (F(-1) + np.arange(31, dtype=F) * F(1 / 30))),
    "arange": (lambda x: x + torch.arange(-1, 2, 0.1)[:30], lambda x: x + (F(-1) + np.arange(30, dtype=F) * F(0.1))),
}  # fmt: skip


@pytest.mark.parametrize("name", RAMPS)
def test_ramps_are_rounded_at_the_size_of_their_ends(name: str, ratio: Any) -> None:
    formula, kernel = RAMPS[name]
    x = np.zeros(30 if name == "arange" else 31, F)
    assert error(formula, kernel, ratio, x) <= 1
    assert error(formula, lambda x: kernel(x) + F(2.0**-18), ratio, x) > 1


def test_whole_numbers_are_exact() -> None:
    inputs = {"x": torch.zeros(8)}
    y = evaluate(lambda x: {"y": torch.where(x == 0, torch.arange(7.1), 0.5)}, inputs, CPU, members=20)["y"]
    assert not bool(y.spread.any())
    first = evaluate(lambda x: {"y": 1 / torch.linspace(0, 1, 8) + x}, inputs, CPU, members=20)["y"]
    assert first.value[0] == math.inf


EDGES = [round(0.1 * number, 1) for number in range(1, 20)]
"""Numbers that float32 does not hold, one of which is above what it holds and another one below."""
TABLES: dict[str, Formula] = {
    "bucketize": lambda x: torch.bucketize(x, torch.tensor(EDGES, dtype=x.dtype)),
    "searchsorted": lambda x: torch.searchsorted(torch.tensor(EDGES, dtype=x.dtype), x),
    "isin": lambda x: torch.isin(x, torch.tensor(EDGES, dtype=x.dtype)),
    "comparison": lambda x: (x[:, None] > torch.tensor(EDGES, dtype=x.dtype)).sum(-1),
    "difference": lambda x: x[:19] - x.new_tensor(EDGES),
    "clamp": lambda x: 1 / (1 - torch.clamp(x, max=torch.tensor([0.999], dtype=x.dtype))),
    "array": lambda x: x[:19] - torch.as_tensor(np.array(EDGES), dtype=x.dtype),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_may_be_those_of_float32(name: str, ratio: Any) -> None:
    formula = TABLES[name]
    x = torch.tensor([*EDGES, *(0.05 + edge for edge in EDGES)])
    expected = evaluate(lambda x: {"y": formula(x)}, {"x": x}, CPU, members=20)["y"]
    for right in (formula(x), formula(x.double())):
        if expected.value.is_floating_point():
            assert ratio(right.float(), expected) <= 1 < ratio(right.float() * (1 + 2.0**-12) + 2.0**-18, expected)
        else:
            assert bool(((right == expected.value) | (expected.spread > 0)).all())
            # Between the edges any other number is wrong.
            assert not bool(expected.spread[19:].any())


def test_tables_that_float32_holds_are_exact() -> None:
    table = [0.5, math.inf, 3.0, math.nan]
    y = evaluate(lambda x: {"y": torch.maximum(x, torch.tensor(table))}, {"x": torch.zeros(4)}, CPU, members=20)["y"]
    assert not bool(y.spread.any()) and y.value[1] == math.inf


def test_tables_have_arrays_and_lists() -> None:
    def formula(x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([EDGES[:2], EDGES[2:4]])
        return x + float(np.asarray(table)[1, 0]) + table.tolist()[0][1]

    y = evaluate(lambda x: {"y": formula(x)}, {"x": torch.zeros(4)}, CPU)["y"]
    assert float(y.value[0]) == 0.3 + 0.2


def test_batch_norm_of_known_statistics_may_be_one_product_and_one_sum(ratio: Any) -> None:
    """PyTorch's own is. A larger eps is found, and in numbers about 0 an error of 2^-18."""

    def normalize(x: torch.Tensor, mean: torch.Tensor, **options: Any) -> torch.Tensor:
        ones = torch.ones(5, dtype=x.dtype)
        return nn.batch_norm(x, mean, ones, 2 * ones, ones / 2, **options)

    x, mean = (
        torch.from_numpy(10 + np.random.default_rng(1).standard_normal((8, 5, 50)).astype(F)),
        torch.full((5,), 10.0),
    )
    for inputs in ({"x": x, "mean": mean}, {"x": x - 10, "mean": mean - 10}):
        y = evaluate(lambda x, mean: {"y": normalize(x, mean)}, inputs, CPU, members=20)["y"]
        assert ratio(normalize(**inputs), y) <= 1
        assert ratio(normalize(**inputs, eps=1e-4), y) > 1
    assert ratio(normalize(**inputs) * (1 + 2.0**-18), y) > 1


def test_batch_norm_of_a_batch_subtracts_its_mean(ratio: Any) -> None:
    x = torch.from_numpy(10 + np.random.default_rng(1).standard_normal((8, 5, 50)).astype(F))
    y = evaluate(lambda x: {"y": nn.batch_norm(x, None, None, training=True)}, {"x": x}, CPU, members=20)["y"]
    scale = x.var((0, 2), correction=0, keepdim=True).add(1e-5).rsqrt()
    normalized = (x - x.mean((0, 2), keepdim=True)) * scale
    assert ratio(normalized, y) <= 1 < ratio(normalized * (1 + 2.0**-17), y)
