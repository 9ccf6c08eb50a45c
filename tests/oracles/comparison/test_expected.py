"""What is evaluated of a reference for a case: later stages add members, and nothing is evaluated twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fuzz.backends import backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, run
from fuzz.errors import ReferenceFailedError
from fuzz.model.outcome import NotRun, Rejected
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    FEW_STEPS,
    FIRST_THOROUGH,
    SMALL,
    STAGES,
    THOROUGH,
    beside_kernels,
    evaluate_reference,
)
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Precision
from fuzz.reference.envelope.noise import MemberNoise
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.protocol import report_of_outcome


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


class Elsewhere(Backend):
    device = "elsewhere"

    def is_fatal(self, error: BaseException) -> bool:
        return "CUDA error" in str(error)

    def external_oom_reason(self, error: BaseException) -> str:
        return "others hold it" if "out of memory" in str(error) else ""


class Lost(Elsewhere):
    """One on which nothing can be computed any more."""

    def synchronize(self) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")


def on_device(name: str = "softmax", smallest: int = SMALL, **changes: Any) -> Examination:
    """A case whose kernels ran on a device that this machine need not have."""
    made, engine = load(name), RandomEngine(load(name), 0)
    cases = (engine.case(number) for number in range(1000))
    case = next(one for one in cases if len(one.calls) == 1 and smallest <= one.elements() < 16 * SMALL)
    cpu = backend("cpu")
    exam = Examination(made, made.launcher, case, cpu, run(made, made.launcher, case.calls, cpu))
    return replace(exam, **{"backend": Elsewhere(), **changes})


def test_a_large_case_alone_is_evaluated_where_its_kernels_ran() -> None:
    assert beside_kernels(on_device(), 0, lambda device: device) == "elsewhere"
    assert beside_kernels(on_device(smallest=1), 0, lambda device: device) == "cpu"
    assert beside_kernels(on_device(outcome=Rejected("not run")), 0, lambda device: device) == "cpu"


@pytest.mark.parametrize(
    "said",
    [
        "Expected all tensors to be on the same device",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasGemmEx",
    ],
)
def test_what_cannot_be_evaluated_on_a_device_is_evaluated_on_the_host(said: str) -> None:
    def evaluate_on(device: str) -> str:
        if device != "cpu":
            raise RuntimeError(said)
        return device

    assert beside_kernels(on_device(), 0, evaluate_on) == "cpu"


@pytest.mark.parametrize("kind", [RuntimeError, ReferenceFailedError])
def test_a_reference_that_ends_what_a_device_can_compute_says_nothing_of_the_kernel(kind: type[Exception]) -> None:
    def evaluate_on(device: str) -> str:
        assert device != "cpu", "the outputs that it is compared with are lost"
        raise kind("CUDA error: device-side assert triggered")

    with pytest.raises(FatalError) as caught:
        beside_kernels(on_device(backend=Lost()), 0, evaluate_on)
    assert isinstance(caught.value.outcome, NotRun) and "assert triggered" in caught.value.outcome.message
    assert not report_of_outcome(caught.value.outcome).findings


def test_indices_are_used_on_the_host_first_where_one_out_of_range_only_raises() -> None:
    exam = on_device("cross_entropy")
    assert beside_kernels(exam, 0, lambda device: device) == "cpu"
    exam.expected[0] = {0: {}}
    assert beside_kernels(exam, 0, lambda device: device) == "elsewhere"
