"""Replicas share their integers where those alone make them run one by one."""

from __future__ import annotations

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import Recipe, recipe
from fuzz.search.engines.integer_sharing import UNSHARED, IntegerSharing
from fuzz.worker.protocol import Report

VALUES, LABELS = recipe("normal", 1), recipe("indices", 2, below=3)
PLANS = 40


def plan_of(**values: Recipe) -> Case:
    dtypes = {"normal": "float32", "indices": "int64"}
    tensors = {name: Argument(("N",), dtypes[one.name], one) for name, one in values.items()}
    return Case("t", (Call({"N": 2}, tensors),))


def run(sharing: IntegerSharing, plan: Case, *, own: bool, shared: bool, outcome: str = "returned") -> list[bool]:
    """By plan whether its replicas share their integers, where they run one by one as the flags say of both kinds."""
    decided = []
    for _ in range(PLANS):
        made = sharing.decide(plan, 4)
        decided.append(made.shares_integers)
        one_by_one = shared if made.shares_integers else own
        sharing.learn(made, [Report(outcome, False, (), (), one_by_one=one_by_one)] * 4)
    return decided


def test_nothing_is_shared_before_it_helps() -> None:
    assert not any(run(IntegerSharing(), plan_of(x=VALUES, labels=LABELS), own=False, shared=False))


def test_integers_that_are_read_are_shared_in_most_plans() -> None:
    decided = run(IntegerSharing(), plan_of(x=VALUES, labels=LABELS), own=True, shared=False)
    assert not decided[0] and sum(decided) == PLANS - 1 - (PLANS - 1) // UNSHARED


def test_they_are_not_where_that_does_not_help() -> None:
    decided = run(IntegerSharing(), plan_of(x=VALUES, labels=LABELS), own=True, shared=True)
    assert sum(decided) == 1


@pytest.mark.parametrize("values", [{"x": VALUES}, {"labels": LABELS}])
def test_replicas_that_would_be_equal_share_nothing(values: dict[str, Recipe]) -> None:
    sharing = IntegerSharing()
    run(sharing, plan_of(x=VALUES, labels=LABELS), own=True, shared=False)
    assert not any(run(sharing, plan_of(**values), own=True, shared=False))


def test_a_plan_of_one_replica_or_that_was_refused_says_nothing() -> None:
    sharing, plan = IntegerSharing(), plan_of(x=VALUES, labels=LABELS)
    run(sharing, plan, own=True, shared=False, outcome="rejected")
    sharing.learn(plan, [Report("returned", False, (), (), one_by_one=True)])
    assert not sharing.decide(plan, 4).shares_integers


def test_a_plan_that_an_engine_made_of_one_that_shares_is_decided_anew() -> None:
    sharing, plan = IntegerSharing(), plan_of(x=VALUES, labels=LABELS)
    run(sharing, plan, own=True, shared=False)
    made = next(one for one in (sharing.decide(plan, 4) for _ in range(2)) if one.shares_integers)
    assert not sharing.decide(made, 1).shares_integers
