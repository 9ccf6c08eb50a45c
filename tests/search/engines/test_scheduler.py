"""The desk gives each engine the share that it earns, and tells reports a fixed number of plans later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe
from fuzz.search.engines import Desk, Proposal
from fuzz.search.engines.novelty import Novelty
from fuzz.worker.protocol import Report


def case(number: int) -> Case:
    return Case("t", (Call({"N": 2}, {"x": Argument(("N",), "float32", recipe("normal", number))}),))


@dataclass
class Fake:
    name: str
    joins: int = 0
    told: list[Proposal] = field(default_factory=list)
    made: int = 0
    closed: bool = False

    def propose(self) -> Proposal:
        self.made += 1
        return Proposal(case(self.made))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        self.told.append(proposal)

    def close(self) -> None:
        self.closed = True


def report(*features: int, constants: tuple[float, ...] = (), findings: tuple[Finding, ...] = ()) -> Report:
    return Report("returned", False, findings, (), 0.0, features, constants)


def played(desk: Desk, news: dict[str, int], plans: int) -> dict[str, int]:
    """How many plans each engine has had, where every plan of an engine finds so many new features."""
    fresh, counts = iter(range(1, 1 << 30)), dict.fromkeys(news, 0)
    drawn = desk.plans()
    for _ in range(plans):
        before = {engine.name: engine.made for engine in desk.engines}  # type: ignore[attr-defined]
        plan, _ = next(drawn)
        name = next(engine.name for engine in desk.engines if engine.made > before[engine.name])  # type: ignore[attr-defined]
        counts[name] += 1
        desk.learn(plan, [report(*(next(fresh) for _ in range(news[name])))])
    return counts


def test_the_share_of_an_engine_is_what_it_earns_above_a_floor() -> None:
    counts = played(Desk([Fake("poor"), Fake("rich")]), {"poor": 0, "rich": 3}, 2000)
    assert counts["rich"] > 1300 and counts["poor"] >= 2000 * 0.2
    counts = played(Desk([Fake("one"), Fake("other")]), {"one": 1, "other": 1}, 400)
    assert abs(counts["one"] - counts["other"]) < 40
    assert played(Desk([Fake("one"), Fake("other")]), {"one": 0, "other": 2}, 300) == played(
        Desk([Fake("one"), Fake("other")]), {"one": 0, "other": 2}, 300
    )


def test_an_engine_that_joins_later_does_not_catch_up_at_once() -> None:
    desk = Desk([Fake("early"), Fake("late", joins=100)])
    assert played(desk, {"early": 1, "late": 1}, 100)["late"] == 0
    assert 30 <= played(desk, {"early": 1, "late": 1}, 100)["late"] <= 70


def test_reports_are_told_to_every_engine_a_fixed_number_of_plans_later() -> None:
    one, other = Fake("one"), Fake("other")
    desk = Desk([one, other], lag=5)
    with desk:
        drawn = desk.plans()
        plans = [next(drawn)[0] for _ in range(4)]
        for plan in plans:
            desk.learn(plan, [report(constants=(99.0, 1.0))])
        next(drawn), next(drawn)
        assert [told.plan for told in one.told] == [] and desk.dictionary.numbers == [] or len(one.told) == 1
        next(drawn)
        assert [told.plan for told in one.told] == [told.plan for told in other.told] == plans[: len(one.told)]
        assert desk.dictionary.numbers == [99.0]
    assert one.closed and other.closed


def test_plans_that_no_engine_proposed_are_nobodys() -> None:
    desk = Desk([Fake("one")])
    desk.learn(case(7), [report(1, 2)])
    assert desk.statistics() == {"one": {"cases": 0, "discoveries": 0, "share": 0.0}}
    plan, _ = next(desk.plans())
    desk.learn(plan, [report(1, 2)])
    assert desk.statistics()["one"] | {"share": 1.0} == {"cases": 1, "discoveries": 2, "share": 1.0}


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
