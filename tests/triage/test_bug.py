"""A bug covers what has its cause, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.triage.bug import Sighting


def test_a_read_of_what_is_not_ones_own_explains_wrong_numbers_too(two_cases: tuple[Case, Case]) -> None:
    read, nan = Finding("bounds", ("x",), "stray-read", "r"), replace(wrong_value("dx"), symptom="nonfinite")
    stray = make_bug(two_cases[1], "x", finding=read, also=(nan,))
    assert stray.covers(wrong_value("dx"), frozenset())
    assert not make_bug(two_cases[1], "dx", finding=nan).covers(wrong_value("dx"), frozenset())


def test_what_was_shrunk_and_merged_once_is_known_the_next_time(two_cases: tuple[Case, Case]) -> None:
    small, large = two_cases
    nan = replace(wrong_value("dx"), symptom="nonfinite", oracle="accuracy")
    bug = make_bug(large, "dx", finding=Finding("bounds", ("x",), "stray-read", "r"), also=(nan,))
    assert not bug.covers(nan, frozenset(), small)
    bug.aliases.append((nan, small))
    assert bug.covers(nan, frozenset(), small) and not bug.covers(wrong_value("dweight"), frozenset(), small)


@pytest.mark.parametrize(("initial", "shrunk", "both"), [("nonfinite", "value", False), ("sign", "value", True)])
def test_what_is_said_of_nan_is_not_said_of_a_case_that_has_none(
    two_cases: tuple[Case, Case], initial: str, shrunk: str, both: bool
) -> None:
    bug = make_bug(two_cases[1], "dx", finding=replace(wrong_value("dx"), symptom=shrunk))
    bug.origin = Sighting(two_cases[0], initial)
    assert bug.diagnosis_cases == ((two_cases[0], bug.case) if both else (bug.case,))
