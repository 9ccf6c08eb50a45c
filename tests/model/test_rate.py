"""Rates against the binomial distribution."""

from __future__ import annotations

from math import comb

import pytest

from fuzz.model.rate import MISS_PROBABILITY, MOST_RUNS, Rate, Z


@pytest.mark.parametrize(("shown", "runs"), [(1, 10), (2, 10), (5, 10), (9, 10), (1, 200), (37, 100)])
def test_the_interval_ends_where_the_score_test_rejects(shown: int, runs: int) -> None:
    low, high = Rate(shown, runs).interval
    assert 0 < low < shown / runs < high < 1
    for end in (low, high):
        assert (shown / runs - end) ** 2 == pytest.approx(Z * Z * end * (1 - end) / runs)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    runs, truths = 10, [step / 200 for step in range(1, 200)]
    covered = 0.0
    for truth in truths:
        for shown in range(runs + 1):
            low, high = Rate(shown, runs).interval
            covered += (low <= truth <= high) * comb(runs, shown) * truth**shown * (1 - truth) ** (runs - shown)
    assert 0.94 < covered / len(truths) < 0.97


def test_what_always_shows_itself_is_tried_once() -> None:
    assert Rate(10, 10).runs_to_try == Rate(10, 10).runs_to_decide == Rate(1, 1).runs_to_decide == 1


@pytest.mark.parametrize(("shown", "runs"), [(1, 10), (2, 10), (5, 10), (9, 10)])
def test_tries_leave_a_doubt_of_one_in_a_hundred(shown: int, runs: int) -> None:
    rate = Rate(shown, runs)
    assert (1 - shown / runs) ** rate.runs_to_try <= MISS_PROBABILITY < (1 - shown / runs) ** (rate.runs_to_try - 1)
    assert rate.runs_to_try <= rate.runs_to_decide <= MOST_RUNS
    if rate.runs_to_decide < MOST_RUNS:
        assert (1 - rate.interval[0]) ** rate.runs_to_decide <= MISS_PROBABILITY


def test_what_never_showed_itself_again_is_given_up_after_so_many_runs() -> None:
    assert Rate(0, 10).runs_to_decide == MOST_RUNS


def test_a_rate_is_read_as_it_is_written() -> None:
    assert Rate.parse(str(Rate(3, 10))) == Rate(3, 10) and Rate.parse("4") == Rate(4, 1)
    assert Rate(2, 10).describe() == "2/10 (6 to 51 %)" and Rate(10, 10).describe() == "10/10"
