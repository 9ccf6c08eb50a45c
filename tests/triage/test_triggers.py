"""What a bug needs: conditions that one edit makes false in its least case and in its unshrunk one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import exact, recipe
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.triggers import Trigger, find_triggers


@pytest.fixture
def plain_case(two_cases: tuple[Case, Case], layernorm: Target) -> Case:
    """A case of float32 that is contiguous, with default options."""
    call = two_cases[0].last
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, dtype="float32", layout=CONTIGUOUS))
    return replace(two_cases[0], calls=(replace(call, options={"eps": 1e-5}, launch=None),), split=None)


def sized(case: Case, rows: int, columns: int, **options: float) -> Case:
    call = replace(case.last, dims={"M": rows, "N": columns}, options={**case.last.options, **options})
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, values=recipe("normal", 1)))
    return replace(case, calls=(call,), split=None)


def columns(case: Case) -> int:
    return case.last.dims["N"]


def largest(case: Case) -> float:
    value = case.last.tensors["x"]
    bits = value.bits(case.last.dims)
    return float(abs(bits.view("float32")).max())


def names(triggers: tuple[Trigger, ...]) -> list[str]:
    return [trigger.name for trigger in triggers]


LARGE = recipe("normal", 1, exponent=6)
Agrees = Callable[[Case], bool]


@pytest.mark.parametrize(
    ("agrees", "needs"),
    [
        (lambda case: columns(case) <= 64, ["N"]),
        (lambda case: columns(case) % 64 == 0, ["N"]),
        (lambda case: case.last.options["eps"] == 1e-5, ["eps"]),
        (lambda case: False, []),
    ],
)
def test_a_bug_needs_what_one_edit_rids_it_of(
    layernorm: Target, plain_case: Case, agrees: Agrees, needs: list[str]
) -> None:
    least, unshrunk = sized(plain_case, 1, 65, eps=1e-12), sized(plain_case, 7, 130, eps=1e-12)
    assert names(find_triggers(least, unshrunk, layernorm, agrees, costly=False)) == needs


def test_a_size_at_which_neither_case_shows_the_bug_lacks_its_trigger(layernorm: Target, plain_case: Case) -> None:
    def agrees(case: Case) -> bool:
        return columns(case) % 5 != 0

    least, unshrunk = sized(plain_case, 1, 5), sized(plain_case, 3, 35)
    (trigger,) = find_triggers(least, unshrunk, layernorm, agrees, costly=False)
    assert [trigger.holds(sized(plain_case, 2, size)) for size in (9, 10, 64, 300)] == [False, True, False, True]


def test_values_are_needed_by_the_property_that_the_least_change_takes_away(
    layernorm: Target, plain_case: Case
) -> None:
    case = sized(plain_case, 1, 2)
    case = case.with_call(0, case.last.with_argument("x", replace(case.last.tensors["x"], values=LARGE)))
    (trigger,) = find_triggers(case, case, layernorm, lambda case: largest(case) <= 2, costly=False)
    assert trigger.name == "x large" and trigger.is_of_values and largest(trigger.edit(case)) == 2


def test_of_a_bug_that_needs_earlier_calls_nothing_else_is_looked_for(layernorm: Target, plain_case: Case) -> None:
    """Each try takes a new process."""
    tried = []

    def agrees(case: Case) -> bool:
        tried.append(case)
        return len(case.calls) == 1

    first, last = sized(plain_case, 1, 1, eps=1e-12).last, sized(plain_case, 1, 200, eps=1e-12).last
    least = replace(plain_case, calls=(first, last), split=None)
    assert names(find_triggers(least, least, layernorm, agrees, costly=False)) == ["earlier calls"]
    assert [len(case.calls) for case in tried] == [1]


def test_a_size_is_needed_though_zeros_behind_the_least_case_hide_the_bug(layernorm: Target, plain_case: Case) -> None:
    """A larger size fills up exact values, so that the least case agrees there; the unshrunk one does not."""
    least, unshrunk = sized(plain_case, 1, 65), sized(plain_case, 3, 200)

    def agrees(case: Case) -> bool:
        return columns(case) <= 64 or case.last.dims["M"] == 1 and columns(case) > 65

    (trigger,) = find_triggers(least, unshrunk, layernorm, agrees, costly=False)
    assert columns(trigger.edit(unshrunk)) == 64 and not trigger.holds(sized(plain_case, 3, 64))


def test_a_sentinel_among_indices_is_a_trigger() -> None:
    target = load("cross_entropy")
    arguments = {
        "logits": Argument(("N", "V"), "float32", recipe("normal", 1)),
        "labels": Argument(("N",), "int64", exact(to_bits([1, -100], named_dtype("int64")), named_dtype("int64"))),
    }
    case = Case("cross_entropy", (Call({"N": 2, "V": 3}, arguments, {"smoothing": 0.0}),))

    def labels(case: Case) -> list[int]:
        value = case.last.tensors["labels"]
        return [int(number) for number in from_bits(value.bits(case.last.dims), named_dtype("int64"))]

    (trigger,) = find_triggers(case, case, target, lambda case: -100 not in labels(case), costly=False)
    assert trigger.name == "labels sentinel" and labels(trigger.edit(case)) == [1, 0]
