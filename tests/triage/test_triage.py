"""Triage confirms a disagreement and shrinks it to a case that clean workers show again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bugs import make_bug

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.rate import Rate
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.triage import Triage, describe_consequences
from fuzz.worker.process import Worker


@pytest.mark.parametrize(
    ("signal", "shown", "is_found"), [("SIGKILL", 1, False), ("SIGKILL", 10, True), ("SIGSEGV", 1, True)]
)
def test_a_worker_that_somebody_kills_is_no_finding(
    two_cases: tuple[Case, Case],
    layernorm: Target,
    monkeypatch: pytest.MonkeyPatch,
    signal: str,
    shown: int,
    is_found: bool,
) -> None:
    triage = Triage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    monkeypatch.setattr(triage, "measure_rate", lambda case, finding: Rate(shown, 10))
    died = Finding("fault", ("launcher",), "died", f"the worker process died of {signal}")
    assert (triage.confirm(two_cases[0], died, ()) is not None) == is_found


@pytest.mark.parametrize(("known", "kept"), [(False, 1), (True, 2)])
def test_a_wrong_number_does_not_shrink_into_a_nan_that_is_known(
    two_cases: tuple[Case, Case], layernorm: Target, known: bool, kept: int
) -> None:
    call = replace(two_cases[1].last, dims={"M": 4, "N": 4})
    bug = make_bug(replace(two_cases[1], calls=(call,)), "dx", has_nan_cause=known)

    class Shown(Triage):
        """Smaller cases are NaN: what has one row; what has more is wrong."""

        def reproduce(self, case: Case, like: Finding, **how: bool) -> Finding | None:
            symptom = "nonfinite" if case.last.dims["M"] < 2 else "value"
            return replace(like, symptom=symptom)

    worker: Any = None
    assert Shown(layernorm, worker, ()).run_shrinker(bug, Budget(), clean=False).case.last.dims["M"] == kept


def test_gradients_that_a_write_spoils_are_no_consequence_of_wrong_numbers(two_cases: tuple[Case, Case]) -> None:
    spoilt = Finding("autograd", ("before_x",), "before", "spoilt")
    numbers = make_bug(two_cases[1], "dx", also=(spoilt,)).least
    written = replace(numbers, finding=Finding("mutation", ("x",), "written", "w"))
    assert (describe_consequences(numbers), describe_consequences(written)) == ((), ("spoilt",))


def test_clean_workers_are_asked_only_while_a_case_has_several_calls(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    case = replace(two_cases[1], calls=(two_cases[1].last,) * 3, split=None)
    bug = make_bug(case, "dx")
    asked: list[tuple[int, bool]] = []

    class Shown(Triage):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            asked.append((len(case.calls), clean))
            return like

    worker: Any = None
    Shown(layernorm, worker, ()).run_shrinker(bug, Budget())
    singles = [clean for calls, clean in asked if calls == 1]
    assert all(clean for calls, clean in asked if calls > 1)
    assert singles[0] and not any(singles[1:]) and len(singles) > 1


def test_a_call_that_shows_it_only_after_others_does_not_take_their_place(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    bug = make_bug(replace(two_cases[1], calls=(two_cases[1].last,) * 2, split=None), "dx")

    class Shown(Triage):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            return like if len(case.calls) > 1 or not clean else None

    worker: Any = None
    assert len(Shown(layernorm, worker, ()).run_shrinker(bug, Budget()).case.calls) == 2
