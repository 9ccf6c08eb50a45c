"""What a bug explains, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.edit import with_values
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.model.recipes import exact, recipe
from fuzz.triage.bug import Origin, group_for_report
from fuzz.triage.triggers import Trigger

RAISED = Finding("fault", ("launcher",), "raised", "raised ValueError")


def test_a_least_case_with_two_classes_of_symptom_is_two_bugs(two_cases: tuple[Case, Case]) -> None:
    number, nan = (make_bug(two_cases[0], finding=replace(wrong_value("dx"), symptom=s)) for s in ("sign", "nonfinite"))
    assert number.is_equal_to(make_bug(two_cases[0], "dx", "dweight")) and not number.is_equal_to(nan)
    assert not number.is_equal_to(make_bug(two_cases[1], "dx"))


def test_one_case_is_one_bug_whether_its_values_are_made_by_a_recipe_or_written_out(
    two_cases: tuple[Case, Case],
) -> None:
    """Both have the digest that names their entry, so that one would be written over the other."""
    made = with_values(two_cases[0], 0, "x", recipe("zeros"))
    x = made.last.tensors["x"]
    written = with_values(made, 0, "x", exact(x.bits(made.last.dims), named_dtype(x.dtype)))
    assert made.key != written.key and make_bug(made, "dx").is_equal_to(make_bug(written, "dx"))
    assert not make_bug(made, "dx").is_equal_to(make_bug(with_values(made, 0, "x", recipe("ones")), "dx"))


def test_a_write_conflict_at_one_line_is_one_bug_in_whatever_case(two_cases: tuple[Case, Case]) -> None:
    conflict = Finding("bounds", ("out",), "write-conflict", "c", source_line="kernel.py:7")
    race = replace(conflict, outputs=("other",), symptom="race")
    here, there, elsewhere = (
        make_bug(case, finding=finding)
        for case, finding in zip(
            (*two_cases, two_cases[1]), (conflict, race, replace(race, source_line="kernel.py:9")), strict=True
        )
    )
    assert here.is_equal_to(there) and not here.is_equal_to(elsewhere)


def test_what_the_least_case_lost_may_have_another_cause(two_cases: tuple[Case, Case]) -> None:
    bug = make_bug(two_cases[1], "dx", "dweight")
    bug.least = replace(bug.least, finding=wrong_value("dx", "dbias"))
    bug.keep_shown_subjects()
    assert bug.subjects == wrong_value("dx").subjects


def test_nan_and_a_number_of_one_output_are_not_merged_for_being_seen_together(two_cases: tuple[Case, Case]) -> None:
    number, nan = (
        make_bug(two_cases[0], "dx"),
        make_bug(two_cases[1], finding=replace(wrong_value("dx"), symptom="nonfinite")),
    )
    nan.least = replace(nan.least, also=(wrong_value("dx"),))
    assert not nan.was_seen_with(number)
    other = make_bug(two_cases[1], "dweight", also=(wrong_value("dx"),))
    assert other.was_seen_with(number)


def test_a_write_of_an_output_that_shares_its_memory_is_one_bug_and_told_as_a_write(
    two_cases: tuple[Case, Case],
) -> None:
    both = Finding("mutation", ("dy",), "written", "w", kinds=(("dy", "written"), ("dy", "aliased")))
    shared = make_bug(two_cases[0], finding=Finding("mutation", ("dy",), "aliased", "a"))
    written = make_bug(two_cases[1], finding=both)
    written.subjects = both.headline_part.subjects
    assert written.was_seen_with(shared) and written.filing_order < shared.filing_order
    written.least = replace(written.least, finding=both.headline_part)
    written.sought = both.headline_part
    assert not written.was_seen_with(shared)


@pytest.mark.parametrize(("initial", "shrunk", "both"), [("nonfinite", "value", False), ("sign", "value", True)])
def test_what_is_said_of_nan_is_not_said_of_a_case_that_has_none(
    two_cases: tuple[Case, Case], initial: str, shrunk: str, both: bool
) -> None:
    bug = make_bug(two_cases[1], "dx", finding=replace(wrong_value("dx"), symptom=shrunk))
    bug.origin = Origin(two_cases[0], initial)
    assert bug.diagnosis_cases == ((two_cases[0], bug.case) if both else (bug.case,))


def test_a_least_case_that_shows_what_is_left_of_another_finding_is_the_same_bug(two_cases: tuple[Case, Case]) -> None:
    """Its unshrunk case showed fewer outputs than its least one."""
    bug = make_bug(two_cases[0], "dx")
    bug.least = replace(bug.least, finding=wrong_value("dx", "dweight"))
    assert bug.is_equal_to(make_bug(two_cases[0], "dweight"))
    assert not bug.is_equal_to(make_bug(two_cases[0], "dbias"))


SIZE = Trigger("N", lambda case: case)
LARGE, SMALL = (Trigger(f"x {what}", lambda case: case, is_of_values=True) for what in ("large", "small"))


@pytest.mark.parametrize(
    ("first", "second", "is_unclear"),
    [
        ((), (SIZE,), True),
        ((), (LARGE,), True),
        ((LARGE,), (SMALL,), True),
        ((LARGE,), (SIZE,), False),
        ((SIZE,), (SIZE,), False),
    ],
)
def test_it_is_not_clear_whether_two_bugs_have_one_cause_where_either_needs_nothing_or_both_need_values(
    two_cases: tuple[Case, Case], first: tuple[Trigger, ...], second: tuple[Trigger, ...], is_unclear: bool
) -> None:
    one, other = (make_bug(case, "dx", triggers=needs) for case, needs in zip(two_cases, (first, second), strict=True))
    assert one.may_share_cause(other) == other.may_share_cause(one) == is_unclear


def test_what_the_number_of_the_call_decides_has_another_cause_than_what_one_call_shows(
    two_cases: tuple[Case, Case],
) -> None:
    always, counted = make_bug(two_cases[0], "dx", triggers=()), make_bug(two_cases[1], "dx", stateful=True)
    assert always.may_share_cause(counted)
    counted.least = replace(counted.least, case=replace(counted.case, calls=(counted.case.last,) * 3, split=None))
    assert counted.counts_calls and not always.may_share_cause(counted) and not counted.may_share_cause(always)


def test_bugs_of_other_outputs_and_those_by_an_error_that_jumps_have_other_causes(two_cases: tuple[Case, Case]) -> None:
    always = make_bug(two_cases[0], "dx", triggers=())
    assert not always.may_share_cause(make_bug(two_cases[1], "dweight", triggers=()))
    jump = make_bug(two_cases[1], finding=replace(wrong_value("dx"), least_error=0.5), triggers=(SIZE,))
    assert not always.may_share_cause(jump)
    odd = make_bug(two_cases[1], finding=replace(wrong_value("dx"), other_than=("dx", "offset")), triggers=(SIZE,))
    assert not always.may_share_cause(odd)
    stray = Finding("bounds", ("x",), "stray-read", "m")
    assert make_bug(two_cases[1], finding=stray, also=(wrong_value("dx"),), triggers=()).may_share_cause(always)


def test_the_most_severe_bug_stands_above_those_that_possibly_have_its_cause(two_cases: tuple[Case, Case]) -> None:
    low, high = (make_bug(two_cases[0], "dx", triggers=(), grade=Grade(name, "special")) for name in ("low", "high"))
    other, raised = make_bug(two_cases[1], "dweight", triggers=()), make_bug(two_cases[1], finding=RAISED)
    groups = group_for_report([low, other, high, raised])
    assert [(id(first), [id(bug) for bug in others]) for first, others in groups] == [
        (id(high), [id(low)]), (id(other), []), (id(raised), []),
    ]  # fmt: skip
