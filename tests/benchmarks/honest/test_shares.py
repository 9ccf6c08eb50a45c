"""Runs are shared among the targets of the honest set: fewest runs first, until each has its cases."""

import math

from benchmarks.honest.shares import MOST_EMPTY, MOST_LONGER, Shares


def shares_of(*targets, runs=(), cases=100, seconds=10.0, end=math.inf):
    shares = Shares(cases, seconds, end)
    shares.add("torch", targets, runs)
    return shares


def run(target, cases=50, disagreements=0):
    return {"target": target, "cases": cases, "cut_off": {"disagreements": disagreements}}


def test_every_target_has_a_run_before_one_has_two():
    shares = shares_of("a", "b", runs=[run("a")])
    order = []
    while (share := shares.take()) is not None:
        order.append(shares.request(share))
        shares.give_back(share, run(share.target))
    assert [(one["target"], one["seed"], one["cases"]) for one in order] == [("b", 0, 100), ("a", 1, 50), ("b", 1, 50)]


def test_a_target_is_fuzzed_by_one_process_at_a_time():
    shares = shares_of("a", "b")
    assert [shares.take().target, shares.take().target, shares.take()] == ["a", "b", None]


def test_what_a_run_had_no_time_to_confirm_comes_first_and_has_longer():
    shares = shares_of("a", "b", runs=[run("b", cases=200, disagreements=3)])
    share = shares.take()
    assert (share.target, shares.request(share)["seconds"]) == ("b", 30.0)
    for _ in range(MOST_LONGER):
        shares.give_back(share, run("b", cases=1, disagreements=3))
        share = shares.take()
    assert share.target == "a"


def test_what_had_no_time_for_a_case_waits_for_its_turn_and_has_longer():
    shares = shares_of("a", "b", runs=[run("b", cases=0)])
    requests = [shares.request(shares.take()) for _ in range(2)]
    assert [(one["target"], one["seconds"]) for one in requests] == [("a", 10.0), ("b", 30.0)]


def test_what_has_a_finding_waits_for_its_turn():
    found = run("b", cases=50, disagreements=3) | {"findings": [{}]}
    assert shares_of("a", "b", runs=[found]).take().target == "a"


def test_what_cannot_run_is_left_out():
    shares = shares_of("a", "b", runs=[{"target": "a", "error": "it has no rule"}, *[run("b", cases=0)] * MOST_EMPTY])
    assert shares.take() is None


def test_no_run_begins_after_the_end():
    assert shares_of("a", end=0.0).take() is None
