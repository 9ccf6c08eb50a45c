"""Two causes of one output, one of which shows in every case, differ in what the wrong elements have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bugs import wrong_value

from fuzz.model.finding import Finding, Pattern
from fuzz.triage.error_patterns import ELEMENTS, FINDINGS, PatternCounts


def finding(*patterns: str, disagreeing: int = 100) -> Finding:
    shown: set[Pattern] = {("dx", pattern) for pattern in patterns}
    return replace(wrong_value("dx"), patterns=frozenset(shown), disagreeing=disagreeing)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ([finding("offset")] * FINDINGS, ("dx", "offset")),
        ([finding("factor")] * FINDINGS, ("dx", "factor")),
        ([*[finding("offset")] * 6, *[finding()] * 2], ("dx", "offset")),
        ([finding("offset")] * (FINDINGS - 1), None),
        ([*[finding("offset")] * 6, *[finding()] * 6], None),
        ([finding("offset", "factor", "number")] * FINDINGS, None),
        ([finding("offset", disagreeing=ELEMENTS - 1)] * FINDINGS, None),
        ([finding()] * FINDINGS, None),
    ],
)
def test_a_finding_without_the_pattern_of_most_before_it_has_another_cause(
    before: list[Finding], found: Pattern | None
) -> None:
    counts = PatternCounts()
    for one in before:
        counts.find_other(1, one)
    assert counts.find_other(1, finding("offset", "factor", "number")) is None
    assert counts.find_other(1, finding()) == found
    assert counts.find_other(2, finding()) is None


def test_what_lacks_the_pattern_that_is_usual_in_a_run_is_marked() -> None:
    """By all cases before it, whether they were triaged or not."""
    counts = PatternCounts()
    marked = [one for _ in range(FINDINGS) for one in counts.mark_unlike([finding("offset"), wrong_value("dweight")])]
    assert all(one.unlike is None for one in marked)
    (odd, other) = counts.mark_unlike([finding("factor"), wrong_value("dweight")])
    assert odd.unlike == ("dx", "offset") and other.unlike is None


def test_what_shows_a_symptom_beside_a_pattern_does_not_fit_the_pattern() -> None:
    sought = replace(finding(), other_than=("dx", "offset"))
    assert finding("factor").shows_symptom_of(sought)
    assert not finding("offset").shows_symptom_of(sought)
    both = replace(sought, outputs=("dx", "dweight"))
    assert not wrong_value("dweight").shows_symptom_of(both)
