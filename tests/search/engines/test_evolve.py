"""evolve climbs error over bound, proposes the same for a seed and the same reports, and begins anew when stuck."""

from __future__ import annotations

import math
from dataclasses import replace

from fuzz.backends.base import DOUBLING_PLANS, FIRST_PLANS
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.evolve import EPOCH, INITIAL, STALLED_PLANS, EvolveEngine
from fuzz.search.engines.replica_count import KNOWN_SIZES, OutputSizes
from fuzz.target.loader import load
from fuzz.worker.protocol import Report


def engine(seed: int = 0, first: int = 0) -> EvolveEngine:
    dictionary = Dictionary()
    dictionary.add([4097, 12.5])
    return EvolveEngine(load("layernorm_bw"), seed, dictionary, first=first)


def nearness(case: Case) -> float:
    """An error over bound that is the larger the nearer a case is to 64 columns of bfloat16, transposed."""
    call = case.last
    columns = abs(math.log2(call.dims["N"]) - 6)
    dtypes = sum(value.dtype == "bfloat16" for value in call.arguments.values())
    layouts = sum(value.layout.kind == "transposed" for value in call.arguments.values())
    return 0.9 * 2.0 ** -(columns + 3 - dtypes + 3 - layouts)


def report(worst: float, *features: int, findings: tuple[Finding, ...] = ()) -> Report:
    return Report("returned", False, findings, (), worst, features)


def climbed(one: EvolveEngine, plans: int) -> list[Case]:
    found = []
    for _ in range(plans):
        proposal = one.propose()
        found.append(proposal.plan)
        one.learn(proposal, [report(nearness(proposal.plan))])
    return found


def test_it_comes_nearer_than_drawing_does() -> None:
    """0.45 is the most that there is: the weight, a row, cannot be transposed."""
    found = climbed(engine(), 700)
    drawn = engine().drawn
    assert max(map(nearness, found)) > 0.44 > 1.9 * max(nearness(drawn.case(number)) for number in range(300))


def test_a_seed_and_the_same_reports_give_the_same_plans() -> None:
    first, again, other = (climbed(engine(seed), 300) for seed in (1, 1, 2))
    assert [case.key for case in first] == [case.key for case in again]
    assert first[INITIAL + 20 :] != other[INITIAL + 20 :]


def test_a_search_that_begins_after_other_plans_of_its_seed_repeats_none() -> None:
    before, again, later = (climbed(engine(first=first), 100) for first in (0, 0, 500))
    assert [case.key for case in before] == [case.key for case in again]
    assert {case.key for case in before}.isdisjoint(case.key for case in later)
    drawn = engine().drawn
    assert [case.key for case in later[:3]] == [drawn.case(number).key for number in (501, 502, 503)]


def test_it_starts_anew_when_nothing_is_new_and_keeps_its_elites() -> None:
    one, populations = engine(), []
    for number in range(EPOCH):
        proposal = one.propose()
        one.learn(proposal, [report(0.5 if number == 10 else 0.0)])
        populations.append(len(one.population))
    late = populations[STALLED_PLANS:]
    assert any(after < before for before, after in zip(late, late[1:], strict=False))
    assert max(member.error for member in one.elites.values()) == 0.5


def test_what_disagrees_or_is_refused_has_no_children() -> None:
    one, found = engine(), Finding("accuracy", ("dx",), "value", "wrong", ratio=9.0)
    for answer in (report(0.0, 5, findings=(found,)), Report("rejected", True, (), ()), Report("died", False, (), ())):
        one.learn(one.propose(), [answer])
    assert not one.population and not one.novel and not one.elites
    one.learn(one.propose(), [report(0.25, 6)])
    assert len(one.population) == len(one.novel) == len(one.elites) == 1


def test_plans_whose_outputs_are_known_to_be_large_have_fewer_replicas() -> None:
    small, large = engine(), engine()
    for one, outputs in ((small, 0), (large, 1 << 30)):
        for _ in range(INITIAL + 100):
            proposal = one.propose()
            one.learn(proposal, [replace(report(nearness(proposal.plan)), output_sizes=(("y", outputs),))])
    later = [(small.propose(), large.propose()) for _ in range(200)]
    # How many replicas there are changes no plan.
    assert [one.plan.key for one, _ in later] == [other.plan.key for _, other in later]
    known = [(one, other) for one, other in later if large.output_sizes.of(other.plan)]
    assert any(one.replica_count > 1 for one, _ in known) and all(other.replica_count == 1 for _, other in known)
    assert all(one.replica_count == other.replica_count for one, other in later if (one, other) not in known)


def test_sizes_of_outputs_are_those_of_plans_that_ran_and_few_are_kept() -> None:
    case, sizes = engine().drawn.case(0), OutputSizes()
    plans = [replace(case, calls=(replace(case.last, dims={"M": n, "N": 2}),)) for n in range(KNOWN_SIZES + 1)]
    for number, plan in enumerate(plans):
        sizes.learn(plan, [replace(report(0.0), output_sizes=(("y", number + 1),)), report(0.0)])
    assert [sizes.of(plan) for plan in (plans[0], plans[1], plans[-1])] == [0, 2, KNOWN_SIZES + 1]
    sizes.learn(plans[1], [report(0.0)])
    assert sizes.of(plans[1]) == 2 and len(sizes.known) == KNOWN_SIZES


def test_plans_have_more_replicas_once_the_run_has_had_many_of_any_engine() -> None:
    """Of a minute's plans evolve proposes too few to come by its own to where replicas double."""
    one = engine()
    early = [one.propose() for _ in range(60)]
    for _ in range(FIRST_PLANS + one.limits.doublings * DOUBLING_PLANS):
        one.learn(early[0], [report(0.0)])
    late = [one.propose() for _ in range(60)]
    assert max(proposal.replica_count for proposal in early) == one.limits.replicas
    assert max(proposal.replica_count for proposal in late) == one.limits.replicas << one.limits.doublings
