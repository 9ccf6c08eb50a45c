"""What a bug needs: conditions that one edit makes false in its least case and in its unshrunk one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import exact, recipe
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.triggers import Trigger, find_triggers

CAUSES = Path(__file__).parents[1] / "quality" / "causes_targets.py"


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


def triggers_of(least: Case, unshrunk: Case, target: Target, agrees: Agrees) -> tuple[Trigger, ...]:
    """The triggers of a bug that every case shows which does not agree."""
    return find_triggers(least, unshrunk, target, agrees, lambda case: not agrees(case), costly=False)


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
    assert names(triggers_of(least, unshrunk, layernorm, agrees)) == needs


def test_an_option_is_lacked_by_a_case_with_a_third_choice_that_does_not_show_the_bug(
    layernorm: Target, plain_case: Case
) -> None:
    """Two bugs that two choices of an option show would be taken for one, as either is gone with its default."""
    least, unshrunk = sized(plain_case, 1, 5, eps=1e-12), sized(plain_case, 3, 20, eps=1e-12)
    for shown, holds in (((1e-12,), [True, False]), ((1e-12, 1e-3), [True, True])):

        def agrees(case: Case, shown: tuple[float, ...] = shown) -> bool:
            return case.last.options["eps"] not in shown

        (trigger,) = triggers_of(least, unshrunk, layernorm, agrees)
        assert [trigger.holds(sized(plain_case, 2, 7, eps=eps)) for eps in (1e-12, 1e-3)] == holds
        assert not trigger.holds(sized(plain_case, 2, 7, eps=1e-5))


def test_a_size_at_which_neither_case_shows_the_bug_lacks_its_trigger(layernorm: Target, plain_case: Case) -> None:
    def agrees(case: Case) -> bool:
        return columns(case) % 5 != 0

    least, unshrunk = sized(plain_case, 1, 5), sized(plain_case, 3, 35)
    (trigger,) = triggers_of(least, unshrunk, layernorm, agrees)
    assert [trigger.holds(sized(plain_case, 2, size)) for size in (9, 10, 64, 300)] == [False, True, False, True]


def test_a_size_at_which_only_another_bug_shows_lacks_the_trigger(layernorm: Target, plain_case: Case) -> None:
    """Where it raises, the oracle of a wrong value does not examine it."""
    least, unshrunk = sized(plain_case, 1, 5), sized(plain_case, 3, 21)

    def shows(case: Case) -> bool:
        return columns(case) % 16 == 5

    def agrees(case: Case) -> bool:
        return columns(case) % 16 not in (5, 6)

    (trigger,) = find_triggers(least, unshrunk, layernorm, agrees, shows, costly=False)
    assert [trigger.holds(sized(plain_case, 2, size)) for size in (5, 6, 37, 38)] == [True, False, True, False]


def test_values_are_needed_by_the_property_that_the_least_change_takes_away(
    layernorm: Target, plain_case: Case
) -> None:
    case = sized(plain_case, 1, 2)
    case = case.with_call(0, case.last.with_argument("x", replace(case.last.tensors["x"], values=LARGE)))
    (trigger,) = triggers_of(case, case, layernorm, lambda case: largest(case) <= 2)
    assert trigger.name == "x large" and trigger.is_of_values and largest(trigger.edit(case)) == 2


def test_a_factor_of_one_tells_nothing_of_what_a_bug_needs(layernorm: Target, plain_case: Case) -> None:
    """A factor that is forgotten makes no difference where it is 1."""
    case = sized(plain_case, 1, 2)
    two, none = (exact(to_bits([number] * 2, named_dtype("float32")), named_dtype("float32")) for number in (2.0, 0.0))
    for values in (two, none):
        case = case.with_call(0, case.last.with_argument("weight", replace(case.last.tensors["weight"], values=values)))

        def agrees(case: Case) -> bool:
            value = case.last.tensors["weight"]
            return set(from_bits(value.bits(case.last.dims), named_dtype("float32"))) == {1.0}

        assert triggers_of(case, case, layernorm, agrees) == ()


def test_the_size_of_a_part_is_a_trigger_whatever_other_parts_there_are() -> None:
    ragged = load(str(CAUSES) + ":row_of_a_part")

    def make(*lengths: int) -> Case:
        ends = exact(to_bits(np.cumsum([0, *lengths]), named_dtype("int32")), named_dtype("int32"))
        arguments = {
            "x": Argument(("ROWS", "N"), "float32", recipe("normal", 1)),
            "ends": Argument(("(PARTS + 1)",), "int32", ends),
        }
        return Case(ragged.name, (Call({"ROWS": sum(lengths), "N": 1, "PARTS": len(lengths)}, arguments),))

    def lengths(case: Case) -> list[int]:
        value = case.last.tensors["ends"]
        return [int(size) for size in np.diff(from_bits(value.bits(case.last.dims), named_dtype("int32")))]

    def agrees(case: Case) -> bool:
        return not any(size > 1 and size % 8 == 1 for size in lengths(case))

    (trigger,) = triggers_of(make(9), make(4, 17, 0, 30), ragged, agrees)
    # Of the last two, parts of the nearest sizes have more rows than there may be, and so have all of them with any.
    for case in (make(9), make(4, 17, 0, 30), make(60, 9, 30, 25, 1), make(0, 97, 49), make(*[0] * 7, 32, 65)):
        assert trigger.is_needed(case, agrees)
    assert not trigger.holds(make(8, 7))


def test_of_a_bug_that_needs_earlier_calls_nothing_else_is_looked_for(layernorm: Target, plain_case: Case) -> None:
    """Each try takes a new process."""
    tried = []

    def agrees(case: Case) -> bool:
        tried.append(case)
        return len(case.calls) == 1

    first, last = sized(plain_case, 1, 1, eps=1e-12).last, sized(plain_case, 1, 200, eps=1e-12).last
    least = replace(plain_case, calls=(first, last), split=None)
    assert names(triggers_of(least, least, layernorm, agrees)) == ["earlier calls"]
    assert [len(case.calls) for case in tried] == [1]


def test_a_size_is_needed_though_zeros_behind_the_least_case_hide_the_bug(layernorm: Target, plain_case: Case) -> None:
    """A larger size fills up exact values, so that the least case agrees there; the unshrunk one does not."""
    least, unshrunk = sized(plain_case, 1, 65), sized(plain_case, 3, 200)

    def agrees(case: Case) -> bool:
        return columns(case) <= 64 or case.last.dims["M"] == 1 and columns(case) > 65

    (trigger,) = triggers_of(least, unshrunk, layernorm, agrees)
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

    (trigger,) = triggers_of(case, case, target, lambda case: -100 not in labels(case))
    assert trigger.name == "labels sentinel" and labels(trigger.edit(case)) == [1, 0]
