"""Runs are shared among the targets of the honest set: fewest runs first, until each has its cases."""

import math

from benchmarks.honest.shares import MOST_ASKED, MOST_EMPTY, MOST_LONGER, MOST_LOST, Shares


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
    first, *others = [(one["target"], one["seed"], one["cases"]) for one in order]
    assert first == ("b", 0, 100)
    assert sorted(others) == [("a", 1, 50), ("b", 1, 50)]


def test_refused_cases_do_not_count():
    share = shares_of("a", runs=[run("a", cases=100) | {"rejected": 60, "not_run": 10}]).take()
    assert share.cases == 30


def test_more_cases_are_asked_for_where_a_target_refuses_most():
    def asked(run):
        shares = shares_of("a", runs=[run], cases=100)
        return shares.request(shares.take())["cases"]

    assert asked(run("a", cases=60)) == 40
    assert asked(run("a", cases=60) | {"rejected": 40}) == 80 * 3
    assert asked(run("a", cases=600) | {"rejected": 600}) == 100 * MOST_ASKED


def test_replicas_that_no_oracle_examined_do_not_count():
    share = shares_of("a", runs=[run("a", cases=100) | {"rejected": 60, "oracles": {"fault": 8}}]).take()
    assert share.cases == 8


def test_a_target_whose_kernel_has_faulted_does_not_share_the_gpu():
    faulty = run("a") | {"findings": [{"message": "raised AcceleratorError: CUDA error: an illegal memory access"}]}
    other = run("b") | {"findings": [{"message": "y: 1 of 2 elements wrong"}]}
    shares = shares_of("a", "b", runs=[faulty, other])
    assert {share.target: share.alone for share in (shares.take(), shares.take())} == {"a": True, "b": False}


def test_another_order_draws_other_cases():
    seeds = set()
    for order in (0, 1, 2):
        shares = Shares(100, 10.0, math.inf, order)
        shares.add("torch", ["a"], [run("a", cases=9)] * 3)
        seeds.add(shares.request(shares.take())["seed"])
    assert len(seeds) == 3 and 3 in seeds


def test_a_target_is_fuzzed_by_one_process_at_a_time():
    shares = shares_of("a", "b")
    assert {shares.take().target, shares.take().target} == {"a", "b"}
    assert shares.take() is None


def order_of(order, sets):
    shares = Shares(100, 10.0, math.inf, order)
    for name, targets in sets.items():
        shares.add(name, targets, ())
    return [shares.take().target for _ in range(sum(map(len, sets.values())))]


def test_targets_without_a_run_come_in_an_order_that_the_seed_draws():
    names = [f"operation_{number:02}" for number in range(20)]
    first = order_of(0, {"torch": names})
    assert sorted(first) == names
    assert first == order_of(0, {"torch": names}) != order_of(1, {"torch": names})
    assert set(first[:10]) not in (set(names[:10]), set(names[10:]))


def test_a_large_set_does_not_keep_a_small_one_waiting():
    sets = {"torch": [f"operation_{number}" for number in range(20)], "tutorials": ["softmax", "attention"]}
    assert {"softmax", "attention"} < set(order_of(0, sets)[:4])


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
    refused, cannot = ({"target": "a", "error": why} for why in ("every one of 38 cases was refused", "it has no rule"))
    assert shares_of("a", runs=[refused]).take().target == "a"
    assert shares_of("a", "b", runs=[refused, cannot, *[run("b", cases=0)] * MOST_EMPTY]).take() is None


def test_what_has_had_cases_is_not_left_out_for_a_run_without():
    refused = {"target": "a", "error": "every one of 38 cases was refused"}
    assert shares_of("a", runs=[run("a"), refused]).take().target == "a"


def test_what_had_no_chance_to_run_is_tried_a_few_times():
    shares = shares_of("a")
    for _ in range(MOST_LOST):
        share = shares.take()
        shares.put_back(share)
    assert share.runs == 0 and shares.take() is None


def test_no_run_begins_after_the_end():
    assert shares_of("a", end=0.0).take() is None
