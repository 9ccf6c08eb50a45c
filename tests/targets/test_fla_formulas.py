"""Formulas of fla-core's references: the delta rule in chunks, and a gradient that autograd would lose."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz.oracles.comparison.elements import compare_elements
from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision

FOLDER = Path(__file__).parents[2] / "targets" / "fla"
PLACES = 12


def import_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    return module


@pytest.fixture(name="delta")
def import_delta(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_formulas("_recurrences", monkeypatch).delta


def sequence(heads: int, keys: int, values: int) -> dict[str, Any]:
    torch.manual_seed(3)
    shapes = {"q": (heads, keys), "k": (heads, keys), "v": (2 * heads, values), "gate": (2 * heads, keys)}
    given: dict[str, Any] = {name: torch.randn(1, PLACES, *shape).double() for name, shape in shapes.items()}
    beta, initial = torch.rand(1, PLACES, 2 * heads).double(), torch.randn(1, 2 * heads, keys, values).double()
    return {**given, "gate": -given["gate"].abs(), "beta": beta, "initial": initial}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("ends", [None, torch.tensor([0, 5, 5, PLACES])])
def test_chunks_give_what_single_places_give(delta: Any, ends: torch.Tensor | None, early: bool) -> None:
    given = sequence(heads=2, keys=3, values=4)
    given |= dict(ends=ends, scale=None, keep=True, early=early)
    if ends is not None:
        given["initial"] = given["initial"].expand(3, -1, -1, -1)
    single = delta(**given)
    for chunk in (1, 4, 64):
        for name, found in delta(**given, chunk=chunk).items():
            torch.testing.assert_close(found, single[name], msg=f"{name} in chunks of {chunk}")


def erase_in_one_chunk(k: torch.Tensor, beta: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
    """The final state of keys without values as kernels compute it: one inverse, and one sum that cancels."""
    scaled = beta.unsqueeze(-1) * k
    inverse = torch.linalg.inv(torch.eye(PLACES, dtype=k.dtype) + (scaled @ k.T).tril(-1))
    return initial - k.T @ ((inverse @ scaled) @ initial)


def test_what_a_chunk_erases_may_be_off_by_roundings_of_what_was_there(delta: Any) -> None:
    k, beta = torch.ones(PLACES, 1), torch.full((PLACES,), 0.75)
    initial = torch.tensor([[8.0, -3.0, 5.3]])
    output = erase_in_one_chunk(k, beta, initial)
    precision = make_precision("libm")

    def wrong(chunk: int) -> bool:
        def reference(k: torch.Tensor, beta: torch.Tensor, initial: torch.Tensor) -> dict[str, torch.Tensor]:
            key, values = k[None, :, None], torch.zeros(1, PLACES, 1, 3)
            given = dict(initial=initial[None, None], ends=None, scale=None, keep=True, chunk=chunk)
            found = delta(key, key, values, beta[None, :, None], **given)
            return dict(final=found["final"][0, 0])

        expected = evaluate(reference, dict(k=k, beta=beta, initial=initial), precision, members=20)["final"]
        return compare_elements(output, expected, precision).wrong

    assert wrong(chunk=0)
    assert not wrong(chunk=64)


def cut_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product of matrices as tensor cores compute it, which cut 13 bits of float32 off."""
    parts = [(part.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32) for part in (a, b)]
    return parts[0] @ parts[1]


def rate_gradient_by_the_inverse(
    k: torch.Tensor, rate: torch.Tensor, initial: torch.Tensor, dfinal: torch.Tensor
) -> torch.Tensor:
    """The gradient of what is erased, by that of the inverse itself: what it loses at one place cancels at no other."""
    inverse = torch.linalg.inv(torch.eye(len(k)) + (rate * k @ k.T).tril(-1))
    dread = -cut_product(cut_product(k, dfinal), initial)
    through = cut_product(cut_product(dread, (rate * k).T).tril(-1), inverse.T)
    return (cut_product(inverse.T, dread) - cut_product(cut_product(inverse.T, through).tril(-1), k)) * k


@pytest.mark.parametrize("seed", [4, 5])
def test_what_a_chunk_erases_may_be_computed_by_an_inverse(delta: Any, seed: int) -> None:
    """Keys of length 1 are 1 - 2^-24 at some places, which tensor cores take for 1 - 2^-10."""
    torch.manual_seed(seed)
    k = torch.where(torch.rand(18, 1) < 0.9, 1.0, 1 - 2**-24)
    rate, initial, dfinal = 0.5 + 0.3 * torch.rand(18, 1), torch.tensor([[8.0]]), torch.tensor([[-8.00677]])

    def reference(k: torch.Tensor, rate: torch.Tensor, initial: torch.Tensor) -> dict[str, torch.Tensor]:
        key, read = k[None, :, None], (rate * k)[None, :, None]
        given = dict(initial=initial[None, None], ends=None, scale=None, keep=True, chunk=64)
        return dict(final=delta(key, key, torch.zeros_like(key), None, read=read, **given)["final"][0, 0])

    precision = make_precision("libm", dot="tf32")
    inputs = dict(k=k, rate=rate, initial=initial)
    expected = evaluate_backward(reference, inputs, dict(final=dfinal), ["rate"], precision, members=20)["drate"]
    assert not compare_elements(rate_gradient_by_the_inverse(**inputs, dfinal=dfinal), expected, precision).wrong


def test_the_gradient_of_a_large_logit_keeps_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    formula = import_formulas("_scores", monkeypatch).LogSigmoid.apply
    x = torch.tensor([-700.0, -50.0, 0.0, 50.0, 700.0], dtype=torch.float64, requires_grad=True)
    y = formula(x)
    y.sum().backward()
    near, far = math.exp(-50.0), math.exp(-700.0)
    torch.testing.assert_close(y.tolist(), [-700.0, -50.0, -math.log(2), -near, -far], rtol=1e-12, atol=0)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.tolist(), [1.0, 1.0, 0.5, near, far], rtol=1e-12, atol=0)


@pytest.mark.parametrize("shift", [240.0, 253.79478])
def test_shares_may_be_of_the_rounded_logarithm_of_their_sum(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels keep log(exp(s0) + exp(s1)) and compute exp(s - that) in both directions: near 256 a unit is 3e-5."""
    cumulative = import_formulas("_recurrences", monkeypatch).cumulative
    s = torch.tensor([shift, shift + 3.13])
    first, second = (s - torch.logaddexp(*s)).exp()

    def reference(s: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(share=cumulative(s.view(1, 2, 1), None)[0].view(2))

    precision = make_precision("libm")
    expected = evaluate_backward(reference, dict(s=s), dict(share=torch.ones(2)), ["s"], precision, members=20)["ds"]
    assert not compare_elements(torch.stack([-first * second, second - second * second]), expected, precision).wrong
    exact = math.exp(-3.13) / (1 + math.exp(-3.13)) ** 2
    torch.testing.assert_close(expected.value.tolist(), [-exact, exact], rtol=1e-5, atol=0)


def test_sums_that_go_on_from_a_part_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cumulative = import_formulas("_recurrences", monkeypatch).cumulative
    s = torch.randn(1, 5, 2, dtype=torch.float64)
    share, gate, final = cumulative(s, None)
    torch.testing.assert_close(final[:, 0], s.logsumexp(1))
    one, two, three = cumulative(s, torch.tensor([0, 2, 2, 5]), s[0, :3].unsqueeze(1))[2].split(1)
    torch.testing.assert_close(one[:, 0], s[:, [0, 0, 1]].logsumexp(1))
    torch.testing.assert_close(two[:, 0], s[:, 1])
    torch.testing.assert_close(three[:, 0], s[:, [2, 2, 3, 4]].logsumexp(1))
    first = cumulative(s[:, :2], None)
    rest = cumulative(s[:, 2:], None, first[2])
    for whole, begin, end in zip((share, gate), first, rest, strict=False):
        torch.testing.assert_close(whole, torch.cat([begin, end], 1))


class Counted(TorchDispatchMode):
    """Counts operations: each of them is one of all members, whatever its size."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def count_operations(formula: Any, places: int, **more: Any) -> int:
    """Those of a forward and a backward."""
    shape = 1, places, 2, 3
    given = {name: torch.rand(shape, requires_grad=True) for name in ("q", "k", "v")}
    with Counted() as counted:  # type: ignore[no-untyped-call]
        y = formula(**given, **more, initial=None, ends=None, scale=None, keep=False)["y"]
        torch.autograd.grad(y.sum(), list(given.values()))
    return counted.count


def test_a_place_of_a_recurrence_takes_few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products, an addition and their gradients, and no views of each input."""
    linear = import_formulas("_recurrences", monkeypatch).linear
    assert count_operations(linear, 9) - count_operations(linear, 8) <= 16


def test_a_place_of_the_delta_rule_takes_few_operations(delta: Any) -> None:
    few, more = (count_operations(delta, places, beta=None) for places in (8, 9))
    assert more - few <= 40
