"""What is evaluated of a reference for a case: later stages add members, and nothing is evaluated twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    FEW_STEPS,
    FIRST_THOROUGH,
    STAGES,
    THOROUGH,
    evaluate_reference,
)
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Precision
from fuzz.reference.envelope.noise import MemberNoise
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
    for stage in (2, 3, 2, 3):
        evaluate_reference(exam, 0, stage)
    assert evaluated == [(0, STAGES[2]), (STAGES[2], STAGES[3])]
    evaluate_reference(replace(exam), 0, 3)
    evaluate_reference(exam, 0, 3, replace(exam.precision, u=0.0))
    assert evaluated[2:] == [(0, STAGES[3])] * 2


def test_a_small_case_alone_begins_with_members_that_perturb_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next stage evaluates all its members beside each other, as it does after the two of screening."""
    evaluated, initialise = [], MemberNoise.__init__

    def seen(noise: MemberNoise, precision: Precision, ids: tuple[int, ...], *more: Any) -> None:
        evaluated.append(ids)
        initialise(noise, precision, ids, *more)

    monkeypatch.setattr(MemberNoise, "__init__", seen)
    exam = examination()
    assert AccuracyOracle().check_case(exam) is None
    assert evaluated[0] == (1, 2, 4, 5)
    for stages in ([FEW_STEPS, BEFORE_THOROUGH], [0, BEFORE_THOROUGH]):
        exam.expected.clear()
        for stage in stages:
            evaluate_reference(exam, 0, stage)
        assert evaluated[-1] == (3, 4, 5, 6, 7, 8)


def test_a_case_far_beyond_its_bounds_is_not_compared_with_the_few_thorough_members() -> None:
    exam = examination()

    def doubled(*given: torch.Tensor, **more: object) -> dict[str, torch.Tensor]:
        return {name: 2 * output for name, output in exam.target.launcher(*given, **more).items()}

    wrong = replace(exam, launcher=doubled, outcome=run(exam.target, doubled, exam.case.calls, exam.backend))
    assert AccuracyOracle().check_case(wrong)
    assert set(wrong.expected[0]) >= {FEW_STEPS, BEFORE_THOROUGH, STAGES.index(THOROUGH)}
    assert FIRST_THOROUGH not in wrong.expected[0]


def test_bounds_only_grow_from_stage_to_stage() -> None:
    exam = examination()
    stages = [evaluate_reference(exam, 0, stage) for stage in range(3)]
    for name, widest in stages[-1].items():
        assert all(bool((one[name].spread <= widest.spread).all()) for one in stages)
        assert not torch.equal(stages[0][name].spread, widest.spread)
