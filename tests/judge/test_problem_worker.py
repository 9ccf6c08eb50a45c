"""What the problem's process says of outputs that differ from its own in more than their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fuzz.judge.processes import problem_worker
from fuzz.judge.processes.isolated_worker import with_words
from fuzz.judge.processes.problem_worker import ProblemHandler, as_words, differing_form
from fuzz.judge.processes.requests import Compare, Describe, DiagnoseOutputs, OutputComparison, ProblemConfig
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import recipe
from tests.judge.problems import RELU, write


@contextmanager
def handler(folder: Path, result: str) -> Iterator[ProblemHandler]:
    """The handler of a problem that returns this, described."""
    path = write(folder, "problem", RELU.replace("torch.relu(x)", result))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_worker, "stay_on_processor", lambda: None)
        found = ProblemHandler(ProblemConfig("kernelbench", path, "cpu", 1 << 10, 10.0))
        found(Describe())
        yield found


def a_case(dtype: str = "float32") -> Case:
    return Case("problem", (with_words(Call({"N": 8}, {"x": Argument(("N",), dtype, recipe("normal"))}, {})),))


def compared(found: ProblemHandler, output: torch.Tensor, case: Case) -> str:
    """What is said of an output; empty where it is right."""
    answer = found(Compare(case, as_words({"out": output})))
    assert isinstance(answer, OutputComparison), answer
    return answer.finding.message if answer.finding else ""


@pytest.mark.parametrize(
    ("result", "dtype", "other"),
    [
        ("torch.zeros_like(x)", torch.float32, torch.float16),
        ("torch.zeros_like(x)", torch.float32, torch.float64),
        ("x.isinf()", torch.bool, torch.int32),
        ("x.long() * 0", torch.int64, torch.int32),
    ],
)
def test_an_output_has_the_dtype_of_the_problems_own(
    tmp_path: Path, result: str, dtype: torch.dtype, other: torch.dtype
) -> None:
    with handler(tmp_path, result) as found:
        assert compared(found, torch.zeros(8, dtype=dtype), a_case()) == ""
        message = compared(found, torch.zeros(8, dtype=other), a_case())
    assert message == f"out is {other}, and that of the problem {dtype}"


def test_for_a_dtype_that_the_problem_does_not_state_a_solution_may_return_that(tmp_path: Path) -> None:
    with handler(tmp_path, "torch.zeros_like(x).float()") as found:
        assert compared(found, torch.zeros(8, dtype=torch.float16), a_case("float16")) == ""


def test_a_format_may_leave_the_dtype_open() -> None:
    one, other = {"out": torch.zeros(2, dtype=torch.int32)}, {"out": torch.zeros(2, dtype=torch.int64)}
    assert differing_form(one, other) == "" != differing_form(one, other, same_dtypes=True)


@pytest.mark.parametrize("result", ["x.isinf()", "x.long() * 0"])
def test_of_outputs_that_are_no_floating_numbers_nothing_more_is_said(tmp_path: Path, result: str) -> None:
    case, words = a_case(), as_words({"out": torch.ones(8)})
    with handler(tmp_path, result) as found:
        assert found(DiagnoseOutputs(case, words, case, words)) == ()


def test_a_diagnosis_that_fails_does_not_end_the_judgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, exam: object, least: object) -> None:
        raise KeyError("what")

    monkeypatch.setattr(problem_worker.AccuracyOracle, "diagnose", fail)
    case, words = a_case(), as_words({"out": torch.ones(8)})
    with handler(tmp_path, "torch.relu(x)") as found:
        assert found(DiagnoseOutputs(case, words, case, words)) == ("the diagnosis failed: KeyError: 'what'",)
