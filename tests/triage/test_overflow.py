"""A wrong value that a case's dtypes cannot hold is told from a mistake of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits
from fuzz.model.edit import with_values
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.model.recipes import recipe
from fuzz.run.findings.deduplicate import Attribution
from fuzz.target.spec import Target
from fuzz.triage.overflow import find_overflow
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import Report

NAN = replace(wrong_value("dx"), symptom="nonfinite")


def with_dtype(case: Case, dtype: str) -> Case:
    for name, value in case.last.tensors.items():
        case = case.with_call(0, case.last.with_argument(name, replace(value, dtype=dtype)))
    return case


def triage_of(target: Target, in_float32: tuple[Finding, ...]) -> Triage:
    """Triage of a launcher that shows these findings in float32, and NaN in narrower dtypes."""

    class Shown(Triage):
        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            wide = {value.dtype for value in case.last.tensors.values()} == {"float32"}
            return Report("returned", False, in_float32 if wide else (NAN,), ORACLE_NAMES)

    return Shown(target, type("NoWorker", (), {"timeout": 1.0})(), ())  # type: ignore[arg-type]


def value_of(largest: float) -> Finding:
    return replace(wrong_value("dx"), largest=(("dx", largest),))


@pytest.mark.parametrize(
    ("in_float32", "is_overflow"),
    [
        (value_of(80000.0), True),
        (value_of(800.0), False),
        (replace(NAN, largest=(("dx", 80000.0),)), False),
        (replace(wrong_value("dweight"), largest=(("dweight", 80000.0),)), False),
    ],
)
def test_an_overflow_is_a_wrong_value_beyond_the_narrow_dtype(
    two_cases: tuple[Case, Case], layernorm: Target, in_float32: Finding, is_overflow: bool
) -> None:
    case = with_dtype(two_cases[0], "float16")
    found = find_overflow(case, NAN, layernorm, triage_of(layernorm, (in_float32,)))
    assert (found is not None) == is_overflow
    if found:
        assert {value.dtype for value in found[0].last.tensors.values()} == {"float32"} and found[1].outputs == ("dx",)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_of_the_range_of_float32_hold_what_float32_does(
    two_cases: tuple[Case, Case], layernorm: Target, dtype: str
) -> None:
    triage = triage_of(layernorm, (value_of(80000.0),))
    assert find_overflow(with_dtype(two_cases[0], dtype), NAN, layernorm, triage) is None


def of_size(case: Case) -> float:
    """The largest number of dy."""
    value = case.last.tensors["dy"]
    return float(np.abs(from_bits(value.bits(case.last.dims), named_dtype(value.dtype))).max())


@pytest.mark.parametrize(
    ("factor", "limit", "is_overflow"),
    [(1e4, 3.4e38, True), (-3e38, 3.4e38, True), (2.01, 1e36, False), (2.01, 64.0, False), (1e4, 0.0, False)],
)
def test_an_overflow_is_a_wrong_value_that_grows_beyond_the_range_with_its_numbers(
    two_cases: tuple[Case, Case], layernorm: Target, factor: float, limit: float, is_overflow: bool
) -> None:
    """NaN above a limit that the wrong value is far below is a mistake of its own."""

    class Shown(Triage):
        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            size = abs(of_size(case) * factor)
            return Report("returned", False, (value_of(size) if size < limit else NAN,), ORACLE_NAMES)

    case = with_dtype(two_cases[0], "float32")
    case = with_values(case, 0, "dy", recipe("huge", 1, binades=3))
    worker: Any = None
    found = find_overflow(case, NAN, layernorm, Shown(layernorm, worker, ()))
    assert (found is not None) == is_overflow
    if found:
        assert found[1].outputs == ("dx",) and of_size(found[0]) < of_size(case)


@pytest.mark.parametrize(("largest", "is_explained"), [(80000.0, True), (800.0, False)])
def test_a_bug_of_wrong_values_explains_their_overflow_only(
    two_cases: tuple[Case, Case], layernorm: Target, largest: float, is_explained: bool
) -> None:
    bug, case = make_bug(two_cases[1], "dx", triggers=()), with_dtype(two_cases[0], "float16")
    found = Attribution(layernorm, triage_of(layernorm, (value_of(largest),)), [bug])
    assert found.attribute(case, NAN) == ((bug, None) if is_explained else (None, NAN))
