"""What a bug explains, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.triage.bug import Sighting


def test_a_least_case_with_two_classes_of_symptom_is_two_bugs(two_cases: tuple[Case, Case]) -> None:
    number, nan = (make_bug(two_cases[0], finding=replace(wrong_value("dx"), symptom=s)) for s in ("sign", "nonfinite"))
    assert number.is_equal_to(make_bug(two_cases[0], "dx", "dweight")) and not number.is_equal_to(nan)
    assert not number.is_equal_to(make_bug(two_cases[1], "dx"))


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


@pytest.mark.parametrize(("initial", "shrunk", "both"), [("nonfinite", "value", False), ("sign", "value", True)])
def test_what_is_said_of_nan_is_not_said_of_a_case_that_has_none(
    two_cases: tuple[Case, Case], initial: str, shrunk: str, both: bool
) -> None:
    bug = make_bug(two_cases[1], "dx", finding=replace(wrong_value("dx"), symptom=shrunk))
    bug.origin = Sighting(two_cases[0], initial)
    assert bug.diagnosis_cases == ((two_cases[0], bug.case) if both else (bug.case,))
