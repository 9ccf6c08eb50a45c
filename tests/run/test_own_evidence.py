"""What is drawn to grade a bug shows that bug itself, and not another one with the same outputs and symptom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.run.findings.deduplicate import Attribution
from fuzz.run.findings.own_evidence import shows_itself
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import Trigger
from fuzz.worker.protocol import Report

MANY_ROWS, MANY_COLUMNS = 8, 16
"""Sizes above which the two mistakes of the launcher here show, each by itself."""


class Shown(Triage):
    """Triage of a launcher that is wrong in cases of many rows, and in those of many columns."""

    runs = 0

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        self.runs += 1
        dims = case.last.dims
        wrong = dims["M"] > MANY_ROWS or dims["N"] > MANY_COLUMNS
        return Report("returned", False, (wrong_value("dx"),) if wrong else (), ORACLE_NAMES)


def of_size(name: str, size: int, case: Case) -> Case:
    """The case with at most this size of a dim."""
    dims = case.last.dims
    return case.with_call(0, replace(case.last, dims={**dims, name: min(dims[name], size)}))


Shows = Callable[[Bug, int, int], bool]
ROWS, COLUMNS = (Trigger(name, partial(of_size, name, size)) for name, size in (("M", MANY_ROWS), ("N", MANY_COLUMNS)))


@pytest.fixture
def known(layernorm: Target, two_cases: tuple[Case, Case]) -> tuple[Attribution, Callable[..., Bug], Shows]:
    """The known bugs, how one is made, and whether a bug itself shows in a case of so many rows and columns."""
    worker: Any = type("NoWorker", (), {"timeout": 1.0})()
    attribution = Attribution(layernorm, Shown(layernorm, worker, ()), [])

    def sized(rows: int, columns: int) -> Case:
        return two_cases[0].with_call(0, replace(two_cases[0].last, dims={"M": rows, "N": columns}))

    def add(*triggers: Trigger, finding: Finding | None = None, **more: Any) -> Bug:
        bug = make_bug(sized(9, 1), finding=finding or wrong_value("dx"), triggers=triggers, **more)
        attribution.bugs.append(bug)
        return bug

    def shows(bug: Bug, rows: int, columns: int) -> bool:
        return shows_itself(attribution, bug, sized(rows, columns), wrong_value("dx"))

    return attribution, add, shows


def test_a_case_that_another_bug_explains_is_no_evidence(known: tuple[Attribution, Any, Shows]) -> None:
    _, add, shows = known
    rows, columns = add(ROWS), add(COLUMNS)
    assert shows(rows, 9, 1) and not shows(rows, 1, 17) and shows(columns, 1, 17) and not shows(columns, 9, 1)
    assert not shows(rows, 9, 17) and not shows(columns, 9, 17), "with either repaired, the case still disagrees"
    assert shows(rows, 1, 1), "no other bug may show there"


def test_what_needs_nothing_shows_where_nothing_else_explains_it(known: tuple[Attribution, Any, Shows]) -> None:
    _, add, shows = known
    always, columns = add(), add(COLUMNS)
    assert shows(always, 9, 1) and shows(always, 9, 17) and not shows(always, 1, 17)
    assert shows(columns, 1, 17) and not shows(columns, 9, 1), "what needs nothing shows everywhere"


def test_nothing_runs_where_no_bug_of_the_run_is_like_it(known: tuple[Attribution, Any, Shows]) -> None:
    attribution, add, shows = known
    bug = add(ROWS)
    add(COLUMNS, finding=wrong_value("dweight")), add(COLUMNS, hits=0, known=True)
    triage = attribution.triage
    assert shows(bug, 1, 17) and isinstance(triage, Shown) and triage.runs == 0
