"""What is evaluated of a reference for a case: later stages add members, and nothing is evaluated twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.expected import BEFORE_THOROUGH, FIRST_THOROUGH, STAGES, THOROUGH, evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load


def examination() -> Examination:
    made, cpu = load("softmax"), backend("cpu")
    case = RandomEngine(made, 0).case(3)
    return Examination(made, made.launcher, case, cpu, run(made, made.launcher, case.calls, cpu))


def test_later_stages_add_members_to_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []
    evaluate = expected.evaluate

    def counted(*given: object, **how: object) -> object:
        evaluated.append((how["after"], how["members"]))
        return evaluate(*given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(expected, "evaluate", counted)
    exam = examination()
    for stage in (1, 2, 1, 2):
        evaluate_reference(exam, 0, stage)
    assert evaluated == [(0, STAGES[1]), (STAGES[1], STAGES[2])]
    evaluate_reference(replace(exam), 0, 2)
    evaluate_reference(exam, 0, 2, replace(exam.precision, u=0.0))
    assert evaluated[2:] == [(0, STAGES[2])] * 2


def test_a_case_far_beyond_its_bounds_is_not_compared_with_the_few_thorough_members() -> None:
    exam = examination()

    def doubled(*given: torch.Tensor, **more: object) -> dict[str, torch.Tensor]:
        return {name: 2 * output for name, output in exam.target.launcher(*given, **more).items()}

    wrong = replace(exam, launcher=doubled, outcome=run(exam.target, doubled, exam.case.calls, exam.backend))
    assert AccuracyOracle().check_case(wrong)
    assert set(wrong.expected[0]) >= {*range(BEFORE_THOROUGH + 1), STAGES.index(THOROUGH)}
    assert FIRST_THOROUGH not in wrong.expected[0]


def test_bounds_only_grow_from_stage_to_stage() -> None:
    exam = examination()
    stages = [evaluate_reference(exam, 0, stage) for stage in range(3)]
    for name, widest in stages[-1].items():
        assert all(bool((one[name].spread <= widest.spread).all()) for one in stages)
        assert not torch.equal(stages[0][name].spread, widest.spread)
