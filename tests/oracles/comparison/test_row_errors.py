"""Errors of a row that the sums which it shares do not explain are found, however long those sums are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch

from fuzz import size, target, tensor
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype
from fuzz.model.layout import Layout
from fuzz.model.recipes import exact, recipe
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.comparison.elements import ElementComparison
from fuzz.oracles.comparison.expected import evaluate_reference
from fuzz.oracles.comparison.long_sums import find_by_stage, find_wrong_together, mark_row
from fuzz.oracles.comparison.row_errors import ELEMENTS, Row, RowErrors, find_uneven_row, may_be_uneven
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.execution.examination import Examination

Array = np.ndarray[Any, Any]
F = np.float32
F64 = torch.float64
N = 1024


def exp_by_polynomial(x: Array) -> Array:
    """exp whose relative error is up to 2^-18 between powers of two."""
    t = x * F(1.44269504)
    whole = np.floor(t + F(0.5))
    f = (t - whole) * F(0.69314718)
    p = 1 + f * (1 + f * (F(0.5) + f * (F(0.1666653) + f * (F(0.0416685) + f * F(0.0082)))))
    return (np.exp2(whole) * p).astype(F)


def softmax_by(exp: Callable[[Array], Array], x: Array) -> Array:
    """Softmax whose sum is added up in sequence, which walks furthest."""
    grown = exp(x - x.max(-1, keepdims=True)).astype(F)
    return (grown / np.add.accumulate(grown, axis=-1, dtype=F)[..., -1:]).astype(F)


def examine_softmax(exp: Callable[[Array], Array], count: int = 3) -> list[Examination]:
    def softmax(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.from_numpy(softmax_by(exp, x.numpy()))}

    x = tensor(size("M", 1, 64), size("N", 1, 4096))
    made = target(x=x, dtypes=("float32",), reference=lambda x: {"y": torch.softmax(x, -1)})(softmax)
    values = recipe("uniform", 1, exponent=0, signed=0)
    case, cpu = (
        Case("softmax", (Call({"M": 2, "N": N}, {"x": Argument(("M", "N"), "float32", values)}),)),
        backend("cpu"),
    )
    return [
        Examination(made, softmax, one, cpu, run(made, softmax, one.calls, cpu))
        for one in map(case.replica, range(count))
    ]


def test_an_exponential_that_is_off_by_two_to_the_minus_18_is_found_and_certified() -> None:
    replicas = examine_softmax(exp_by_polynomial)
    found = AccuracyOracle().check_case(replicas[0])
    assert found is not None and "of y share the same sums" in found.message and found.ratio > 1
    assert 0 < found.disagreeing < 2 * N
    assert adjudicate(replicas[0], found, 600.0).name == "kernel"
    screen(replicas)
    assert [one.cleared for one in replicas] == [False, False, True]


def test_a_right_exponential_over_a_sum_in_sequence_is_not() -> None:
    replicas = examine_softmax(np.exp)
    assert [AccuracyOracle().check_case(one) for one in replicas] == [None] * 3


@pytest.mark.parametrize("shape", [("N",), ("M", "N")])
def test_elementwise_outputs_have_no_members_that_perturb_inputs(shape: tuple[str, ...]) -> None:
    """An element outside of a bound without any spread is found by the members that perturb steps alone."""

    def launch(x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = torch.exp(x.double()).float()
        return {"y": torch.where(torch.arange(out.shape[-1]) == 3, out * (1 + 2.0**-21), out)}

    sizes = {"M": size("M", 1, 9), "N": size("N", 1, 99)}
    made = target(
        x=tensor(*(sizes[name] for name in shape)), dtypes=("float32",), reference=lambda x: {"y": torch.exp(x)}
    )
    dims = {name: {"M": 2, "N": 64}[name] for name in shape}
    call = Call(dims, {"x": Argument(shape, "float32", recipe("uniform", 1, exponent=0, signed=0))})
    case, cpu = Case("launch", (call,)), backend("cpu")
    ready = made(launch)
    exam = Examination(ready, launch, case, cpu, run(ready, launch, case.calls, cpu))
    outputs = exam.returned.calls[0].outputs
    expected = evaluate_reference(exam, 0, 0)
    narrow = {name: replace(one, spread=one.spread * 0) for name, one in expected.items()}
    assert find_by_stage(exam, 0, outputs, narrow, 1, None)["y"].how.ratio > 1


def made_row(errors: torch.Tensor, orders: torch.Tensor, members: torch.Tensor) -> RowErrors:
    """A row of errors, where values are all alike and rounding of the output is nothing."""
    ones = torch.ones_like(errors)
    none = torch.zeros(0, *errors.shape, dtype=errors.dtype)
    return RowErrors(errors, orders, members, none, 1e-9 * ones, ones, ones)


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def noise(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator) * 2 - 1


def test_multiples_of_patterns_are_no_errors_and_what_is_left_is(random: torch.Generator) -> None:
    pattern, members = noise(1, 200, generator=random), 0.1 * noise(20, 1, 200, generator=random)
    orders = torch.stack([pattern, 2 * pattern, -pattern])
    explained = 5 * pattern + 3 + 0.1 * noise(1, 200, generator=random)
    assert find_uneven_row(made_row(explained, orders, members)) is None
    wrong = explained.clone()
    wrong[0, 7] += 1.5
    found = find_uneven_row(made_row(wrong, orders, members))
    assert found is not None and found.number == 0 and found.ratio > 1
    assert int(found.residual.abs().argmax()) == 7


def test_orders_that_are_all_the_same_say_nothing_of_others(random: torch.Generator) -> None:
    pattern, members = noise(1, 200, generator=random), 0.1 * noise(20, 1, 200, generator=random)
    errors = 2 * noise(1, 200, generator=random)
    for orders, is_judged in (([pattern] * 3, False), ([pattern * 0] * 3, True), ([pattern, 2 * pattern], True)):
        found = find_uneven_row(made_row(errors, torch.stack(orders), members))
        assert (found is not None) is is_judged


@pytest.mark.parametrize("groups", [1, 2, 4, 96, 128])
def test_sums_of_equal_terms_may_be_added_up_in_any_groups(groups: int) -> None:
    """The rows of such a sum are the same in order and in reverse, so that every order that is tried has one error."""

    def total(x: torch.Tensor) -> dict[str, torch.Tensor]:
        # Not torch.cumsum, which adds up in float64.
        return {"y": reduce(torch.add, [reduce(torch.add, x[first::groups]) for first in range(groups)])}

    sizes = size("M", 1, 512), size("N", 1, 64)
    made = target(x=tensor(*sizes), dtypes=("float32",), reference=lambda x: {"y": x.sum(0)})(total)
    row = 256 + torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    x = Argument(("M", "N"), "float32", exact(to_bits(row), dtype("float32")), Layout(expand=(0,)))
    case, cpu = Case("total", (Call({"M": 512, "N": 64}, {"x": x}),)), backend("cpu")
    exam = Examination(made, total, case, cpu, run(made, total, case.calls, cpu))
    assert find_wrong_together(exam, 0, exam.outputs) == {}


def test_elements_that_are_left_out_change_nothing(random: torch.Generator) -> None:
    """All is 0 of an element whose bound or value is not finite."""
    pattern, members = noise(1, 200, generator=random), 0.1 * noise(20, 1, 200, generator=random)
    errors = 5 * pattern
    errors[0, 7] += 1.5
    row = made_row(errors, torch.stack([pattern, 2 * pattern, -pattern]), members)
    for field in vars(row).values():
        field[..., 5] = 0.0
    found = find_uneven_row(row)
    assert found is not None and int(found.residual.abs().argmax()) == 7 and found.residual[5] == 0
    errors[0, 7] -= 1.5
    assert find_uneven_row(row) is None


def test_where_each_element_has_a_sum_of_its_own_nothing_is_said(random: torch.Generator) -> None:
    orders, members = noise(3, 1, 200, generator=random), 0.1 * noise(20, 1, 200, generator=random)
    assert find_uneven_row(made_row(3 * noise(1, 200, generator=random), orders, members)) is None


def test_a_row_of_a_result_that_is_not_contiguous_is_marked() -> None:
    symptom, bound, ratio = (torch.zeros(3, 2, 4, dtype=kind).transpose(0, 1) for kind in (torch.int8, F64, F64))
    marked = mark_row(ElementComparison(symptom, bound, ratio), Row(4, 3.0, torch.tensor([0.5, 2.0, 0.0, -3.0])))
    assert marked.ratio[1, 1].tolist() == [0.5, 2.0, 0.0, 3.0] and marked.ratio.sum() == 5.5
    assert (marked.symptom > 0).nonzero().tolist() == [[1, 1, 1], [1, 1, 3]]


def test_short_rows_integers_and_what_agrees_are_not_asked() -> None:
    row, wrong = torch.zeros(2, ELEMENTS), torch.ones(2, ELEMENTS, dtype=torch.int8)
    assert may_be_uneven(row, wrong)
    assert not may_be_uneven(row, 0 * wrong) and not may_be_uneven(row.int(), wrong)
    assert not may_be_uneven(row[:, 1:], wrong[:, 1:]) and not may_be_uneven(torch.tensor(1.0), torch.tensor(1))
