"""The deterministic oracle names the programs and lines of a race that explains a finding, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import backend, cpu
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import recipe
from fuzz.oracles.deterministic import DeterministicOracle
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.oracles.execution.examination import Examination
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import Launcher, declare

Outputs = Mapping[str, torch.Tensor]
N = size("N", 1, 64)


@pytest.fixture(autouse=True)
def active() -> Iterator[None]:
    with cpu.active():
        yield


@triton.jit
def adds_its_left_neighbour(x, y):
    place = tl.program_id(0)
    left = tl.load(y + place - 1, mask=place > 0, other=0.0)
    tl.store(y + place, tl.load(x + place) + left)


@triton.jit
def copies(x, y):
    place = tl.program_id(0)
    tl.store(y + place, tl.load(x + place))


def racing(x: torch.Tensor) -> Outputs:
    y = torch.zeros_like(x)
    adds_its_left_neighbour[(x.numel(),)](x, y)
    return {"y": y}


def without_races(x: torch.Tensor) -> Outputs:
    y = torch.zeros_like(x)
    copies[(x.numel(),)](x, y)
    return {"y": y}


def examination(launcher: Launcher) -> Examination:
    target = declare(launcher, x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x))
    case = Case(target.name, (Call({"N": 6}, {"x": Argument(("N",), "float32", recipe("normal", 1))}),))
    return CaseRunner(target, launcher, backend("cpu")).run(case)


def test_a_race_is_named_where_results_depend_on_the_order_of_programs() -> None:
    exam = examination(racing)
    (finding,) = DeterministicOracle().check([exam])
    assert finding and finding.outputs == ("y",)
    sentences = DeterministicOracle().diagnose(exam, exam)
    assert sentences and all("race" in text and "adds_its_left_neighbour" in text for text in sentences)
    assert all("test_deterministic.py:" in text and "program (" in text for text in sentences)


def test_races_that_the_least_case_does_not_have_are_said_to_be_of_the_unshrunk_one() -> None:
    sentences = DeterministicOracle().diagnose(examination(racing), examination(without_races))
    assert sentences and all(text.startswith("in the unshrunk case (") and "race" in text for text in sentences)


def test_no_race_is_named_where_there_is_none_and_races_are_observed_for_a_diagnosis_only() -> None:
    exam = examination(without_races)
    assert DeterministicOracle().check([exam]) == [None] and DeterministicOracle().diagnose(exam, exam) == ()
    assert examination(racing).returned.calls[-1].accesses == ()
