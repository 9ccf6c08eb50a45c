"""Errors of one sign in all rows are told from the walks of right sums, and nothing is said where rows are alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuzz import size, target, tensor
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import recipe
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.comparison.bias import Bias, find_bias, may_be_biased, relative_errors, walk_limit
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import evaluate, evaluate_orders, make_precision

CPU = make_precision("libm")
Array = np.ndarray[Any, Any]
F = np.float32
WRONG = F(2.0**-18)


def rows(count: int, columns: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).random((count, columns)) + 0.5).astype(F)


def judge(reference: Callable[[torch.Tensor], torch.Tensor], out: Array, x: Array) -> Bias | None:
    """The bias of an output, by bounds that hold no walks."""
    y = lambda x: {"y": reference(x)}  # noqa: E731
    inputs, got = {"x": torch.from_numpy(x)}, torch.from_numpy(np.asarray(out, F))
    expected = evaluate(y, inputs, CPU, members=80, uncertainty=False, walks=False)["y"]
    compared = compare_elements(got, expected, CPU)
    errors = relative_errors(got, expected, compared)
    if not may_be_biased(errors, expected.value):
        return None
    return find_bias(errors, evaluate_orders(y, inputs, CPU)["y"] / compared.bound, expected.value)


def in_sequence(x: Array) -> Array:
    return np.add.accumulate(x, axis=-1, dtype=F)[..., -1]


def in_lanes(x: Array) -> Array:
    return in_sequence(np.add.accumulate(x.reshape(*x.shape[:-1], -1, 64), axis=-2, dtype=F)[..., -1, :])


def compensated(x: Array) -> Array:
    s, lost = np.zeros(x.shape[:-1], F), np.zeros(x.shape[:-1], F)
    for i in range(x.shape[-1]):
        y = x[..., i] - lost
        t = s + y
        lost, s = (t - s) - y, t
    return s


def in_a_tree(x: Array) -> Array:
    while x.shape[-1] > 1:
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


SUMS = (in_sequence, in_lanes, compensated, in_a_tree)


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


@pytest.mark.parametrize("add", SUMS)
def test_a_factor_of_all_rows_is_found_in_sums_of_4096_terms_and_right_sums_are_not(add: Callable[..., Array]) -> None:
    x = rows(64, 4096)
    found = judge(total, add(x) * (1 + WRONG), x)
    assert found is not None and found.by_size and found.mean > found.limit > 1
    assert judge(total, add(x), x) is None


def test_products_of_inputs_whose_low_bits_are_cut_off_are_found() -> None:
    a, x = rows(8, 1024, 1), rows(8, 1024)
    product = lambda x: x @ torch.from_numpy(a).double().T  # noqa: E731
    cut = (x.view(np.uint32) & np.uint32(0xFFFFFFC0)).view(F)
    found = judge(product, in_sequence(cut[:, None] * a), x)
    assert found is not None and found.mean < -found.limit
    assert judge(product, in_sequence(x[:, None] * a), x) is None


def test_errors_that_shift_values_of_both_signs_are_found() -> None:
    x = rows(64, 2048) + 30
    centred = lambda x: x - x.mean(-1, keepdim=True)  # noqa: E731
    mean = in_lanes(x) / F(2048)
    found = judge(centred, x - (mean * (1 + WRONG))[:, None], x)
    assert found is not None and not found.by_size
    assert judge(centred, x - mean[:, None], x) is None


@pytest.mark.parametrize("add", SUMS)
def test_rows_that_are_alike_tell_nothing(add: Callable[..., Array]) -> None:
    for x in (np.repeat(rows(1, 4096), 64, 0), np.full((64, 4096), F(0.1)), np.repeat(rows(4, 4096), 16, 0)):
        assert judge(total, add(x), x) is None


def test_equal_rows_count_as_one_and_dependent_ones_have_no_limit() -> None:
    walks = torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alike = torch.full((64,), 9.0, dtype=torch.float64)
    assert walk_limit(walks, alike) < 5
    assert walk_limit(walks[:, :16].repeat_interleave(4, 1), alike) == math.inf
    assert walk_limit(walks[:, :4, None].expand(3, 4, 500), torch.full((4, 500), 9.0).double()) == math.inf
    assert walk_limit(walks + 100, alike) == math.inf
    assert walk_limit(torch.zeros(3, 64, 8, dtype=torch.float64), torch.full((64, 8), 9.0).double()) == math.inf


def test_an_error_of_one_group_is_no_shift_of_all() -> None:
    walks = torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = torch.zeros(64, dtype=torch.float64)
    one[3] = 64e6
    assert find_bias(one, walks, torch.ones_like(one)) is None
    assert find_bias(torch.full_like(one, 1e6), walks, torch.ones_like(one)) is not None


def test_few_elements_integers_and_outputs_without_bounds_are_not_asked() -> None:
    ones = torch.ones(64, dtype=torch.float64)
    assert may_be_biased(2 * ones, ones) and not may_be_biased(0.9 * ones, ones)
    assert not may_be_biased(2 * ones[:8], ones[:8]) and not may_be_biased(2 * ones, ones.long())


def examine_sums(factor: float) -> list[Examination]:
    """Three replicas of a plan whose rows are added up in sequence, times a factor."""

    def rows_added_up(x: torch.Tensor) -> dict[str, torch.Tensor]:
        sums = np.add.accumulate(x.numpy(), axis=1, dtype=F)[:, -1]
        return {"y": torch.from_numpy(sums) * F(factor)}

    dims = {"M": 40, "N": 2048}
    x = tensor(size("M", 1, 64), size("N", 1, 4096))
    made = target(x=x, dtypes=("float32",), reference=lambda x: {"y": total(x)})(rows_added_up)
    values = recipe("uniform", 1, exponent=0, signed=0)
    case, cpu = Case("rows_added_up", (Call(dims, {"x": Argument(("M", "N"), "float32", values)}),)), backend("cpu")
    return [
        Examination(made, rows_added_up, one, cpu, run(made, rows_added_up, one.calls, cpu))
        for one in map(case.replica, range(3))
    ]


@pytest.mark.parametrize("factor", [1.0, 1 + 2.0**-18])
def test_the_accuracy_oracle_finds_and_certifies_a_shift_that_the_screen_does_not_clear(factor: float) -> None:
    replicas = examine_sums(factor)
    found = AccuracyOracle().check_case(replicas[0])
    screen(replicas)
    if factor == 1:
        assert found is None and replicas[2].cleared
        assert all(AccuracyOracle().check_case(one) is None for one in replicas)
    else:
        assert found is not None and "all 40 of y are too large in size" in found.message
        assert adjudicate(replicas[0], found, 600.0).name == "kernel"
        assert not any(one.cleared for one in replicas)


def test_of_replicas_whose_errors_may_have_one_sign_two_are_examined_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    every = lambda errors, value: torch.ones(len(errors), dtype=torch.bool)  # noqa: E731
    monkeypatch.setattr("fuzz.oracles.comparison.screening.rows_that_may_be_biased", every)
    replicas = examine_sums(1.0)
    screen(replicas)
    assert [one.cleared for one in replicas] == [False, False, True]
