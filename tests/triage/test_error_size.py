"""Two causes of one output, one of which shows in every case, differ in what one edit does to the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bugs import wrong_value

from fuzz.model.case import Case
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.target.spec import Target
from fuzz.triage.error_size import LargerError
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import Report

Error = Callable[[Case], float]


class Shown(Triage):
    """Triage of a launcher that is wrong by an error which depends on the case."""

    error: Error

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        error = self.error(case)
        return Report("returned", False, (replace(wrong_value("dx"), error=error, ratio=error),), ORACLE_NAMES)


def columns(case: Case) -> int:
    return case.last.dims["N"]


@pytest.mark.parametrize(
    ("error", "least"),
    [
        (lambda case: 0.5 if columns(case) > 64 else 0.005, 0.125),
        (lambda case: 0.5 if case.last.options["eps"] != 1e-5 else 0.02, 0.125),
        (lambda case: columns(case) / 1000, None),
        (lambda case: 0.5 if columns(case) > 64 else 0.2, None),
        (lambda case: 0.5 if columns(case) > 1 else 0.0, None),
    ],
)
def test_a_jump_of_the_error_is_found_and_a_slow_growth_is_none(
    layernorm: Target, two_cases: tuple[Case, Case], error: Error, least: float | None
) -> None:
    call = replace(two_cases[0].last, dims={"M": 2, "N": 200}, options={"eps": 1e-12})
    case = replace(two_cases[0], calls=(call,), split=None)
    worker: Any = None
    triage = Shown(layernorm, worker, ())
    triage.error = error
    finding = replace(wrong_value("dx"), error=error(case), ratio=error(case))
    found = LargerError(layernorm, triage, finding).find(case)
    assert found == (least and pytest.approx(least))
