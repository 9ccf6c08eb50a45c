"""Where compiling takes most of the time, plans that ran come again with other values, for a part of the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fuzz.backends.base import FIRST_PLANS
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import FAULT
from fuzz.search.engines import make_scheduler
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import MutationContext
from fuzz.search.engines.other_values import MOST_AGAIN, SHARE, OtherValues
from fuzz.search.engines.random import RandomEngine
from fuzz.target.legal import make_legal
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report

RAN = Report("returned", False, (), ("accuracy",))
FAILED = Report("does not compile: ..", False, (Finding(FAULT.name, ("launcher",), "compile-error", ".."),), ())
WRONG = replace(RAN, findings=(Finding("accuracy", ("dx",), "value", "m"),))


def structures(plan: Case) -> list[object]:
    return [(call.structure, repr(call.options)) for call in plan.calls]


def run(target: Target, count: int, report: Report, seconds: Callable[[bool], float]) -> list[tuple[Case, bool]]:
    """Plans with whether each came again, whose reports come at once and take so many seconds."""
    engine, other_values = RandomEngine(target, 1), OtherValues()
    engine.other_values = other_values
    found: list[tuple[Case, bool]] = []
    for _ in range(count):
        plan = engine.propose().plan
        is_again = plan in other_values._pending
        found.append((plan, is_again))
        other_values.learn(replace(plan), [report], seconds(is_again))
    return found


@pytest.mark.parametrize("name", ["layernorm_bw", "cross_entropy", "msda"])
def test_plans_of_kernels_that_take_long_to_compile_come_again(name: str) -> None:
    target = load(name)
    found = run(target, 200, RAN, lambda is_again: 0.5 if is_again else 10.0)
    again = [plan for plan, is_again in found if is_again]
    new = [plan for plan, is_again in found if not is_again]
    assert len(again) == pytest.approx(SHARE * 10.0 / 0.5 * len(new), rel=0.1)
    for number, (plan, is_again) in enumerate(found):
        if is_again:
            earlier = [one for one, _ in found[:number]]
            assert any(structures(plan) == structures(one) for one in earlier)
            assert plan not in earlier
            assert make_legal(plan, target).key == plan.key


def test_never_more_than_a_few_come_again_for_one_new_plan() -> None:
    found = run(load("layernorm_bw"), 90, RAN, lambda is_again: 0.0 if is_again else 10.0)
    assert sum(is_again for _, is_again in found) == pytest.approx(90 * MOST_AGAIN / (MOST_AGAIN + 1), abs=MOST_AGAIN)
    rows = "".join("a" if is_again else "n" for _, is_again in found)
    assert MOST_AGAIN * "a" in rows and (MOST_AGAIN + 1) * "a" not in rows


@pytest.mark.parametrize(
    ("report", "seconds"), [(RAN, 5.0), (FAILED, 0.01), (WRONG, 0.01)], ids=["cheap to compile", "fails", "wrong"]
)
def test_others_do_not_come_again(report: Report, seconds: float) -> None:
    """One that ran does once: that shows what it costs."""
    found = run(load("layernorm_bw"), 60, report, lambda is_again: seconds if is_again else 10.0)
    assert sum(is_again for _, is_again in found) == (report is RAN)


def test_one_that_waits_counts_as_having_taken_what_they_take() -> None:
    target, other_values = load("layernorm_bw"), OtherValues()
    context = MutationContext(target, Dictionary(), Random(0))
    engine = RandomEngine(target, 2)
    for number in range(3):
        other_values.learn(engine.case(number), [RAN], 10.0)
    first = other_values.choose(context)
    assert first is not None and other_values.choose(context) is None
    other_values.learn(first, [RAN], 1.0)
    waiting = [other_values.choose(context) for _ in range(6)]
    # The first plan of all is not counted: processes start before it. 5 s are due, and one has been.
    assert [plan is not None for plan in waiting] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_only_runs_on_a_gpu_that_time_ends_have_them(backend: str, is_timed: bool) -> None:
    def start(folder: Any) -> Any:
        raise AssertionError

    how: dict[str, Any] = dict(numbers=(), start_process=start, is_timed=is_timed)
    scheduler = make_scheduler("random", load("layernorm_bw"), backend, 3, **how)
    assert (scheduler.other_values is not None) == (backend == "cuda" and is_timed)
    plain = RandomEngine(load("layernorm_bw"), 3)
    plans, due = scheduler.plans(), [plain.propose().plan for _ in range(FIRST_PLANS)]
    drawn = [next(plans)[0] for _ in range(FIRST_PLANS)]
    assert drawn == due or backend == "cuda" and is_timed
