"""The scheduler gives each engine the share that it earns, and feeds reports back a fixed number of plans later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe
from fuzz.search.engines import EngineScheduler, Proposal, RandomEngine, make_scheduler
from fuzz.search.engines.novelty import Novelty
from fuzz.search.engines.other_values import OtherValues
from fuzz.search.engines.runnable_sizes import RunnableSizes, sizes_of
from fuzz.search.engines.scheduler import ELEMENTS_PER_PLAN
from fuzz.target.loader import load
from fuzz.worker.protocol import Report


def case(number: int, size: int = 2) -> Case:
    return Case("t", (Call({"N": size}, {"x": Argument(("N",), "float32", recipe("normal", number))}),))


@dataclass
class Fake:
    name: str
    joins: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    learnt: list[Proposal] = field(default_factory=list)
    made: int = 0
    closed: bool = False

    def propose(self) -> Proposal:
        self.made += 1
        return Proposal(case(self.made, self.sizes.get(self.made, 2)))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        self.learnt.append(proposal)

    def close(self) -> None:
        self.closed = True


def report(*features: int, constants: tuple[float, ...] = (), findings: tuple[Finding, ...] = ()) -> Report:
    return Report("returned", False, findings, (), 0.0, features, constants)


def run_plans(scheduler: EngineScheduler, news: dict[str, int], plans: int) -> dict[str, int]:
    """How many plans each engine has had, where every plan of an engine finds so many new features."""
    fresh, counts = iter(range(1, 1 << 30)), dict.fromkeys(news, 0)
    drawn = scheduler.plans()
    for _ in range(plans):
        before = {engine.name: engine.made for engine in scheduler.engines}  # type: ignore[attr-defined]
        plan, _ = next(drawn)
        name = next(engine.name for engine in scheduler.engines if engine.made > before[engine.name])  # type: ignore[attr-defined]
        counts[name] += 1
        scheduler.learn(plan, [report(*(next(fresh) for _ in range(news[name])))])
    return counts


def test_the_share_of_an_engine_is_what_it_earns_above_a_floor() -> None:
    counts = run_plans(EngineScheduler([Fake("poor"), Fake("rich")]), {"poor": 0, "rich": 3}, 2000)
    assert counts["rich"] > 1300 and counts["poor"] >= 2000 * 0.2
    counts = run_plans(EngineScheduler([Fake("one"), Fake("other")]), {"one": 1, "other": 1}, 400)
    assert abs(counts["one"] - counts["other"]) < 40
    assert run_plans(EngineScheduler([Fake("one"), Fake("other")]), {"one": 0, "other": 2}, 300) == run_plans(
        EngineScheduler([Fake("one"), Fake("other")]), {"one": 0, "other": 2}, 300
    )


def test_an_engine_that_joins_later_does_not_catch_up_at_once() -> None:
    scheduler = EngineScheduler([Fake("early"), Fake("late", joins=100)])
    assert run_plans(scheduler, {"early": 1, "late": 1}, 100)["late"] == 0
    assert 30 <= run_plans(scheduler, {"early": 1, "late": 1}, 100)["late"] <= 70


def test_a_plan_that_is_larger_than_all_before_it_together_waits() -> None:
    """By its elements: one of millions may take as long as a run."""
    scheduler = EngineScheduler([Fake("one", sizes={3: 40 * ELEMENTS_PER_PLAN})])
    drawn = scheduler.plans()
    plans = [next(drawn)[0] for _ in range(40)]
    assert plans.index(case(3, 40 * ELEMENTS_PER_PLAN)) > 20
    assert [plan for plan in plans if plan.elements() == 2] == [case(number) for number in (1, 2, *range(4, 41))]
    for plan in plans:
        scheduler.learn(plan, [report()])
    assert scheduler.statistics()["one"]["cases"] == 40


def test_where_all_plans_are_too_large_the_smallest_of_some_comes() -> None:
    engine = Fake("one", sizes={number: (1 << 30) - number for number in range(100)})
    drawn = EngineScheduler([engine]).plans()
    assert [next(drawn)[0].elements() for _ in range(3)] == [(1 << 30) - number for number in (5, 4, 3)]


def test_reports_are_told_to_every_engine_a_fixed_number_of_plans_later() -> None:
    one, other = Fake("one"), Fake("other")
    scheduler = EngineScheduler([one, other], lag=5)
    with scheduler:
        drawn = scheduler.plans()
        plans = [next(drawn)[0] for _ in range(4)]
        for plan in plans:
            scheduler.learn(plan, [report(constants=(99.0, 1.0))])
        next(drawn), next(drawn)
        assert (
            [learnt.plan for learnt in one.learnt] == [] and scheduler.dictionary.numbers == [] or len(one.learnt) == 1
        )
        next(drawn)
        assert (
            [learnt.plan for learnt in one.learnt]
            == [learnt.plan for learnt in other.learnt]
            == plans[: len(one.learnt)]
        )
        assert scheduler.dictionary.numbers == [99.0]
    assert one.closed and other.closed


def test_plans_that_no_engine_proposed_are_nobodys() -> None:
    scheduler = EngineScheduler([Fake("one")])
    scheduler.learn(case(7), [report(1, 2)])
    assert scheduler.statistics() == {"one": {"cases": 0, "discoveries": 0, "share": 0.0}}
    plan, _ = next(scheduler.plans())
    scheduler.learn(plan, [report(1, 2)])
    assert scheduler.statistics()["one"] | {"share": 1.0} == {"cases": 1, "discoveries": 2, "share": 1.0}


def test_reports_may_come_in_another_order_than_the_plans_and_some_plans_never_run() -> None:
    scheduler = EngineScheduler([Fake("one")], lag=0, sizes=RunnableSizes())
    drawn = scheduler.plans()
    plans = [next(drawn)[0] for _ in range(4)]
    scheduler.learn(plans[2], [report(1)])
    assert not scheduler.leaves_out(plans[1], "too small"), "the first one for a reason runs"
    assert scheduler.leaves_out(plans[0], "too small")
    assert scheduler.sizes is not None and list(scheduler.sizes.failed) == [sizes_of(plans[0])]
    scheduler.learn(plans[0], [report(3)])
    assert scheduler.statistics()["one"] | {"share": 1.0} == {"cases": 1, "discoveries": 1, "share": 1.0}
    scheduler.learn(plans[1], [report(2)])
    assert not scheduler.sizes.failed, "what was refused did compile"
    assert not scheduler.leaves_out(plans[3], "too small")
    scheduler.learn(plans[3], [report()])
    assert scheduler.statistics()["one"]["cases"] == 3


def test_a_plan_that_comes_again_with_other_values_needs_nothing_compiled() -> None:
    target, other_values = load("layernorm_bw"), OtherValues()
    engine = RandomEngine(target, 2, other_values=other_values)
    scheduler = EngineScheduler([engine], other_values=other_values, propose_again=engine.propose_again)
    drawn = scheduler.plans()
    first, second = next(drawn)[0], next(drawn)[0]
    assert not scheduler.is_compiled(first) and scheduler.next_compiled() is None
    scheduler.learn(first, [report()])
    assert other_values.is_due
    scheduler.learn(second, [report()])
    third, _ = scheduler.next_compiled() or next(drawn)
    assert scheduler.is_compiled(third) and third.last.dims in (first.last.dims, second.last.dims)
    assert scheduler.next_compiled() is None, "the first one shows what they cost"
    scheduler.learn(third, [report()])
    assert not scheduler.is_compiled(third) and scheduler.statistics()["random"]["cases"] == 3
    numbers = [scheduler.engines[0].first]  # type: ignore[attr-defined]
    assert not scheduler.is_compiled(next(drawn)[0]) and numbers == [3]


def test_no_other_engine_is_asked_for_what_comes_again() -> None:
    def start(folder: Any) -> Any:
        raise AssertionError

    how: dict[str, Any] = dict(numbers=(), start_process=start, is_timed=True)
    scheduler = make_scheduler("evolve", load("layernorm_bw"), "cuda", 3, **how)
    assert scheduler.other_values is not None
    for _ in range(4):
        scheduler.learn(next(scheduler.plans())[0], [report()])
    assert scheduler.other_values.is_due and scheduler.next_compiled() is None


def test_what_was_seen_is_no_discovery_again() -> None:
    novelty, found = Novelty(), Finding("accuracy", ("y",), "value", "wrong", ratio=4.0)
    assert novelty.discoveries(case(1), report(5, 6)) == 2
    assert novelty.discoveries(case(1), report(5, 6)) == 0
    assert novelty.discoveries(case(1), report(6, findings=(found,))) > 2
    assert novelty.discoveries(case(2), report(6, findings=(found,))) == 0
    assert novelty.discoveries(case(1), Report("rejected", True, (), (), features=(77,))) == 0


@pytest.mark.parametrize(("first", "second", "new"), [(0.2, 0.3, 1), (0.3, 0.31, 0), (0.3, 1e-9, 0), (0.0, 1e-6, 1)])
def test_an_error_twice_as_near_to_its_bound_is_a_discovery(first: float, second: float, new: int) -> None:
    novelty = Novelty()
    novelty.discoveries(case(1), Report("returned", False, (), (), first))
    assert novelty.discoveries(case(1), Report("returned", False, (), (), second)) == new
