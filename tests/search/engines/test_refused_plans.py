"""Of plans that do not compile few run, as long as that is true."""

from __future__ import annotations

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe
from fuzz.search.engines.refusals import FREE, MOST_REASONS, Refusals
from fuzz.worker.protocol import NOT_RUN, Report

FAILED = Report("does not compile: it", False, (Finding("fault", (), "compile-error", "wrong"),), ())
RAN = Report("returned", False, (), ())
RAISED = Report("raised it", False, (Finding("fault", (), "raised", "wrong"),), ())
REJECTED = Report("rejected: it", True, (), ())
HUNG = Report("did not return", False, (Finding("fault", (), "hung", "wrong"),), ())
LACKS = Report(f"{NOT_RUN}no memory", False, (), (), not_run=True)


def plan(number: int) -> Case:
    return Case("t", (Call({"N": number}, {"x": Argument(("N",), "float32", recipe("normal", number))}),))


def test_the_first_plan_for_each_reason_runs_and_one_of_eight() -> None:
    refusals = Refusals()
    runs = [not refusals.leaves_out(plan(number), f"N of {number} is too small") for number in range(1, 2 * FREE + 2)]
    assert [number for number, ran in enumerate(runs, 1) if ran] == [1, FREE, 2 * FREE]
    assert not refusals.leaves_out(plan(1), "N of 3 is odd") and refusals.leaves_out(plan(2), "N of 5 is odd")


def test_reasons_without_end_are_one() -> None:
    refusals = Refusals()
    left_out = [refusals.leaves_out(plan(1), "why" * number) for number in range(200)]
    assert 200 - MOST_REASONS - 200 // FREE <= sum(left_out) < 200 - MOST_REASONS


@pytest.mark.parametrize(
    ("report", "stays"),
    [(FAILED, True), (LACKS, True), (REJECTED, True), (HUNG, True), (RAN, False), (RAISED, False)],
)
def test_nothing_is_left_out_any_more_once_a_refused_plan_did_compile(report: Report, stays: bool) -> None:
    refusals, first = Refusals(), plan(1)
    assert not refusals.leaves_out(first, "why") and refusals.leaves_out(plan(2), "why")
    assert not refusals.learn(plan(1), [RAN]), "another plan, which was not refused"
    assert refusals.leaves_out(plan(3), "why")
    assert refusals.learn(first, [report]) is not stays and refusals.is_trusted is stays
    assert refusals.leaves_out(plan(4), "why") is stays
    assert not refusals.learn(first, [RAN]), "it was taken in"
