"""A launcher that is wrong in certain calls of a process: what is found names the call, and hides nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.run.findings.deduplicate import Attribution
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.call_number import find_call
from fuzz.triage.conditions import describe_conditions
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import Report

BITS = Finding("deterministic", ("dx",), "bits", "other bits")


class Counting(Triage):
    """Triage of a launcher whose process counts its calls; `is_wrong` says in which of them it is wrong."""

    calls = 0

    def is_wrong(self, number: int, case: Case) -> bool:
        """Not where the last call has one row; earlier calls may have."""
        return number % 3 == 0 and case.last.dims["M"] > 1

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        first = self.calls = 0 if clean else self.calls
        self.calls += len(case.calls)
        wrong = [index for index in range(len(case.calls)) if self.is_wrong(first + index + 1, case)]
        found = [replace(wrong_value("dx"), call=wrong[0])] if wrong else []
        found += [BITS] if oracle == BITS.oracle else []  # Its reruns are the calls 2 and 3.
        return Report("returned", False, tuple(found), ORACLE_NAMES)


class ByChance(Counting):
    rng = random.Random(1)

    def is_wrong(self, number: int, case: Case) -> bool:
        return self.rng.random() < 0.3


class OnceForAll(Counting):
    def is_wrong(self, number: int, case: Case) -> bool:
        return number == 1


class Both(Counting):
    """It is wrong in cases of many rows, too."""

    def is_wrong(self, number: int, case: Case) -> bool:
        return super().is_wrong(number, case) or case.last.dims["M"] > 16


def triage(kind: type[Counting], target: Target) -> Any:
    worker: Any = type("NoWorker", (), {"timeout": 1.0})()
    return kind(target, worker, ())


@pytest.fixture
def case(two_cases: tuple[Case, Case]) -> Case:
    return replace(two_cases[1], calls=(replace(two_cases[1].last, dims={"M": 4, "N": 4}),), split=None)


def test_a_bug_of_every_third_call_needs_two_calls_before_it(layernorm: Target, case: Case) -> None:
    seen = triage(Counting, layernorm)
    bug = seen.confirm(case, wrong_value("dx"), ())
    assert bug.stateful and bug.rate.certain and len(bug.case.calls) == 3 and bug.finding.call == 2
    seen.shrink(bug, Budget())
    assert len(bug.case.calls) == 3 and bug.case.last.dims == {"M": 2, "N": 1} and bug.counts_calls
    alone = describe_conditions(bug.case, layernorm, lambda case: len(case.calls) == 1)
    assert alone[0] == "only in call 3 of a process, of 3 equal ones"


@pytest.mark.parametrize("kind", [ByChance, OnceForAll])
def test_what_shows_by_chance_or_in_the_first_call_needs_no_calls_before_it(
    layernorm: Target, case: Case, kind: type[Counting]
) -> None:
    assert find_call(case, wrong_value("dx"), triage(kind, layernorm)) is None


def test_what_one_call_of_a_new_process_shows_is_not_explained_by_the_number_of_the_call(
    layernorm: Target, case: Case
) -> None:
    seen = triage(Both, layernorm)
    known = seen.confirm(case, wrong_value("dx"), ())
    found = Attribution(layernorm, seen, [known])
    assert found.attribute(case, wrong_value("dx")) == (known, None)
    many = case.with_call(0, replace(case.last, dims={"M": 20, "N": 4}))
    assert found.attribute(many, wrong_value("dx")) == (None, wrong_value("dx"))


def test_runs_that_differ_as_one_of_them_is_such_a_call_have_its_cause(layernorm: Target, case: Case) -> None:
    seen = triage(Counting, layernorm)
    known = seen.confirm(case, wrong_value("dx"), ())
    found = Attribution(layernorm, seen, [known])
    assert found.attribute(case, BITS) == (known, None)
    assert found.have_same_cause(make_bug(case, finding=BITS, triggers=()), known)
    other = replace(BITS, outputs=("dweight",))
    assert found.attribute(case, other)[0] is None
