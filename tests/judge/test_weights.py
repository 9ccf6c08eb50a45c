"""Which parameter of a solution stands for which of the problem."""

from __future__ import annotations

import pytest

from fuzz.judge.formats.weights import Weight, describe_renamed, match_weights
from fuzz.judge.problem.description import NotComparable

LINEAR = [Weight("linear.weight", (4, 3)), Weight("linear.bias", (4,))]


def test_what_has_the_problems_name_is_that_one() -> None:
    found = match_weights(LINEAR, LINEAR[::-1])
    assert found == {"linear.weight": "linear.weight", "linear.bias": "linear.bias"} and not describe_renamed(found)


def test_other_names_are_matched_by_shape() -> None:
    found = match_weights(LINEAR, [Weight("offset", (4,)), Weight("kernel", (4, 3))])
    assert found == {"linear.weight": "kernel", "linear.bias": "offset"}
    assert describe_renamed(found) == "weights by shape and order: kernel for linear.weight, offset for linear.bias"


def test_what_weights_are_made_of_tells_those_of_one_shape_apart() -> None:
    problem = [Weight("norm.weight", (8,), "ones"), Weight("norm.bias", (8,), "zeros")]
    solution = [Weight("beta", (8,), "zeros"), Weight("gamma", (8,), "ones")]
    assert match_weights(problem, solution) == {"norm.weight": "gamma", "norm.bias": "beta"}


def test_weights_that_are_alike_are_taken_in_their_order() -> None:
    problem = [Weight("first.weight", (5, 5)), Weight("second.weight", (5, 5))]
    solution = [Weight("a", (5, 5)), Weight("b", (5, 5))]
    assert match_weights(problem, solution) == {"first.weight": "a", "second.weight": "b"}


def test_another_fill_does_not_matter_where_a_shape_is_alone() -> None:
    assert match_weights([Weight("scale", (7,), "ones")], [Weight("gain", (7,), "zeros")]) == {"scale": "gain"}


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ([Weight("linear.weight", (3, 4)), Weight("linear.bias", (4,))], "linear.weight has shape"),
        ([Weight("kernel", (4, 3))], "the problem's linear.bias has no counterpart"),
        ([*LINEAR, Weight("scale", (4,))], "the solution's scale has no counterpart"),
        ([Weight("kernel", (4, 3)), Weight("a", (4,)), Weight("b", (4,))], "the problem's linear.bias"),
    ],
)
def test_what_has_no_counterpart_cannot_be_compared(solution: list[Weight], reason: str) -> None:
    with pytest.raises(NotComparable, match=reason):
        match_weights(LINEAR, solution)


def test_a_buffer_of_its_own_is_no_weight() -> None:
    assert match_weights(LINEAR, [*LINEAR, Weight("mask", (4,), is_parameter=False)])["linear.bias"] == "linear.bias"
