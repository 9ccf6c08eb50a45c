"""Whether a run fails."""

from __future__ import annotations

from typing import Any

import pytest
from bugs import make_bug

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.search.statistics import RunStatistics

WRONG = Finding("accuracy", ("dx",), "value", "dx: 1 of 2 elements wrong")
REFERENCE = Finding("accuracy", ("dx",), "reference", "the reference of gelu_bw is wrong in 1 of 2 elements")


@pytest.mark.parametrize(
    ("options", "numbers", "fails"),
    [
        ({}, {}, False),
        ({}, {"disagreements_cut_off": [WRONG]}, True),
        ({}, {"disagreements_cut_off": [REFERENCE]}, False),
        ({}, {"disagreements_cut_off": [REFERENCE, WRONG]}, True),
        ({"fail_on": "low"}, {"disagreements_cut_off": [REFERENCE]}, True),
        ({"fail_on": "high"}, {"disagreements_cut_off": [WRONG]}, False),
        ({}, {"disagreements_cut_off": [WRONG], "interrupted": True}, False),
    ],
)
def test_a_disagreement_that_could_not_be_confirmed_counts_as_medium_and_as_low_where_the_reference_is_wrong(
    options: dict[str, str], numbers: dict[str, Any], fails: bool
) -> None:
    result = Result(RunOptions("gelu_bw", **options), "cpu", RunStatistics(), [], 1.0, **numbers)  # type: ignore[arg-type]
    assert result.fails() is fails


@pytest.mark.parametrize(("interrupted", "fails"), [(False, True), (True, False)])
def test_beside_a_finding_of_severity_low_it_counts_where_that_may_not_explain_it(
    case: Case, interrupted: bool, fails: bool
) -> None:
    low = make_bug(case, "dy", grade=Grade("low", "extreme"))
    seen = dict(disagreements_cut_off=[WRONG] * 3, interrupted=interrupted)
    for unexplained in ([], [WRONG]):
        result = Result(
            RunOptions("gelu_bw"), "cpu", RunStatistics(), [low], 1.0, unexplained_cut_off=unexplained, **seen
        )
        assert result.fails() == (fails and bool(unexplained))
        assert dict(result.counted_unconfirmed) == ({"accuracy": 1} if result.fails() else {})


def test_beside_a_confirmed_finding_it_does_not_count(case: Case) -> None:
    bug = make_bug(case, "dx", known=True)
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [bug], 1.0, disagreements_cut_off=[WRONG])
    assert result.fails() and not result.fails(only_new=True)
