"""A run has as many cases as it was asked for, though replicas of plans that fail do not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path

import pytest

from fuzz.corpus import codec
from fuzz.errors import UsageError
from fuzz.model.case import Argument, Case
from fuzz.model.recipes import Exact
from fuzz.run.case_budget import CaseBudget
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.protocol import ReplicaGroup, Report

RAN = Report("returned", False, (), ("fault",))

REFUSES = """
from fuzz import size, target, tensor

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def refuses(x):
    if len(x) > 1:
        raise NotImplementedError("no more than one element")
    return dict(y=x * 2)
"""


@pytest.fixture
def plan() -> Case:
    return RandomEngine(load("gelu_bw"), 0).case(0)


@pytest.mark.parametrize(("replicas", "ran", "plans"), [(64, 8, 13), (64, 1, 13), (4, 1, 25), (64, 64, 2), (30, 30, 4)])
def test_a_plan_counts_as_eight_cases_or_its_replicas_unless_more_ran(
    plan: Case, replicas: int, ran: int, plans: int
) -> None:
    groups: list[ReplicaGroup] = []

    def answers(drawn: Iterator[ReplicaGroup]) -> Iterator[tuple[ReplicaGroup, tuple[Report, ...]]]:
        # As workers do, whose answers come after more has been sent to them.
        sent = list(drawn)
        groups.extend(sent)
        return ((group, (RAN,) * min(ran, len(group.sampled))) for group in sent)

    budget = CaseBudget(100, 7)
    answered = list(budget.examine([], repeat((plan, replicas)), answers))
    assert [group for group, _ in answered] == groups and len(groups) == plans
    firsts = [group.first for group in groups]
    assert firsts[0] == 7 and all(b.first == a.first + len(a.sampled) for a, b in zip(groups, groups[1:], strict=False))


@pytest.mark.parametrize(("cases", "singles", "plans"), [(2, 2, 0), (5, 3, 2), (None, 3, 4)])
def test_single_cases_are_of_the_budget(plan: Case, cases: int | None, singles: int, plans: int) -> None:
    def answers(drawn: Iterator[ReplicaGroup]) -> Iterator[tuple[ReplicaGroup, tuple[Report, ...]]]:
        return ((group, (RAN,)) for group in drawn)

    budget = CaseBudget(cases, 7)
    groups = [group for group, _ in islice(budget.examine([(plan, ("layout",))] * 3, repeat((plan, 1)), answers), 7)]
    assert [group.sampled for group in groups[:singles]] == [(("layout",),)] * singles
    assert [group.first for group in groups] == [*range(7, 7 + singles + plans)]


def test_a_given_case_that_no_entry_holds_is_refused_also_beyond_the_budget(
    plan: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "LARGEST_CASE", 21)
    listed = Argument(("N",), "float32", Exact((0, 0, 0), "float32"))
    large = plan.with_call(0, replace(plan.last, dims={"N": 3}).with_argument("x", listed))
    options = RunOptions("gelu_bw", cases=1)
    with pytest.raises(UsageError, match="more than the 21 that an entry holds"):
        Fuzzer(options, load("gelu_bw"), "cpu", tmp_path, Watcher(), {}, suspects=(plan, large)).run()


def test_a_run_has_all_its_cases_where_most_plans_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "refuses.py"
    path.write_text(REFUSES)
    results = []
    for workers in (1, 2):
        options = RunOptions(str(path), engine="random", cases=600, workers=workers, first_replicas=64)
        fuzzer = Fuzzer(options, load(str(path)), "cpu", tmp_path / "found", Watcher(), {}, allow_all_rejected=True)
        statistics = fuzzer.run().statistics
        results.append((statistics.cases, statistics.rejected, statistics.distribution()))
    assert results[0] == results[1] and results[0][0] == 600 and results[0][1] > 200
