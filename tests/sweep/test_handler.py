"""What lacks memory while a kernel is measured is no failure of it: it is measured again, or the command ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest
import torch

from fuzz.backends.base import Backend
from fuzz.errors import BackendError, UsageError
from fuzz.model.outcome import Died, NotRun, OutOfMemory, Raised
from fuzz.sweep import runner
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.handler import answer_by_outcome, launching
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import make_handler
from fuzz.sweep.plan import SweepPlan, make_plan
from fuzz.sweep.runner import run_sweep
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load
from fuzz.worker import retry_backoff
from fuzz.worker.channel import LastResponse
from fuzz.worker.deadline import Deadline
from fuzz.worker.worker import WorkerCrash

TOY = f"{Path(__file__).parent / 'toy_targets.py'}:same"
LACK = NotRun("no memory is left here: others hold it")


class SharedDevice(Backend):
    """A device that other processes use as well."""

    def is_fatal(self, error: BaseException) -> bool:
        return "illegal" in str(error)

    def external_oom_reason(self, error: BaseException) -> str:
        return "others hold it" if "full" in str(error) else ""


@dataclass
class Scripted:
    """A worker with these responses."""

    responses: Iterator[Any]
    deadline: Deadline

    def call(self, request: int) -> Any:
        return next(self.responses)


def toy_plan() -> SweepPlan:
    return make_plan(load(TOY), TOY, dtype="float16", backend="cpu")


def answer(measure: Callable[[int], Any]) -> Any:
    return answer_by_outcome(SharedDevice(), measure)(0)


def raising(error: Exception) -> Callable[[int], NoReturn]:
    def fail(request: int) -> NoReturn:
        raise error

    return fail


def launched(error: Exception) -> Callable[[int], None]:
    def fail(request: int) -> None:
        with launching(SharedDevice()):
            raise error

    return fail


@pytest.mark.parametrize("how", [raising, launched])
def test_memory_that_others_hold_is_no_failure_wherever_it_lacks(how: Callable[[Exception], Any]) -> None:
    assert answer(how(torch.OutOfMemoryError("full"))) == LACK
    # The process cannot go on.
    assert answer(how(RuntimeError("full: illegal"))) == LastResponse(LACK)


def test_what_a_kernel_does_is_told_from_what_is_done_beside_it() -> None:
    too_much = torch.OutOfMemoryError("too much")
    assert answer(launched(too_much)) == OutOfMemory("OutOfMemoryError: too much")
    assert answer(raising(too_much)) == NotRun("no room to measure it: OutOfMemoryError: too much")
    astray = RuntimeError("illegal access")
    last = answer(launched(astray))
    assert isinstance(last, LastResponse) and isinstance(last.response, Raised)
    with pytest.raises(RuntimeError, match="illegal access"):
        answer(raising(astray))
    with pytest.raises(UsageError, match="no output"):
        answer(launched(UsageError("no output")))


def test_what_a_device_says_late_is_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedDevice, "synchronize", raising(RuntimeError("illegal access")))

    def measure(request: int) -> None:
        with launching(SharedDevice()):
            pass

    last = answer(measure)
    assert isinstance(last, LastResponse) and "illegal access" in last.response.message


@pytest.mark.parametrize("step", [(SweptKernel, "make_tensors"), (CorrectRounding, "rounded")])
def test_a_sweep_tells_what_lacks_memory_beside_the_kernel(
    monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    monkeypatch.setattr(*step, lambda *_: raising(torch.OutOfMemoryError("full"))(0))
    assert isinstance(make_handler(toy_plan())(0), NotRun)


def test_memory_is_given_back_after_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Mock()
    monkeypatch.setattr(SharedDevice, "release_memory", released)
    assert answer(lambda request: 7) == 7
    released.assert_called_once()
    assert answer(launched(torch.OutOfMemoryError("full"))) == LACK
    assert released.call_count == 2, "who waits for memory keeps none"


def swept(monkeypatch: pytest.MonkeyPatch, *responses: Any) -> tuple[list[SweepCounts], list[float]]:
    """What a sweep of as many parts yields with these responses of its worker, and the seconds that it slept."""
    slept: list[float] = []
    monkeypatch.setattr(retry_backoff, "time", SimpleNamespace(sleep=slept.append))
    worker = Scripted(iter(responses), Deadline())
    monkeypatch.setattr(runner, "Worker", lambda *_: nullcontext(worker))
    return list(run_sweep(toy_plan(), 1 << 30, 1.0)), slept


def test_a_part_that_lacks_memory_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (counts,), slept = swept(monkeypatch, LACK, WorkerCrash(LACK), SweepCounts(count=3))
    assert (counts.count, counts.failed, slept) == (3, [], list(retry_backoff.PAUSES[:2]))


def test_a_sweep_whose_memory_lacks_for_good_blames_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match="cannot be measured now: no memory is left here: others hold it"):
        swept(monkeypatch, *[LACK] * 99)


@pytest.mark.parametrize("response", [Raised("error"), WorkerCrash(Died("SIGSEGV"))])
def test_a_kernel_that_fails_is_not_called_again(monkeypatch: pytest.MonkeyPatch, response: Any) -> None:
    (counts,), slept = swept(monkeypatch, response)
    assert len(counts.failed) == 1 and not slept
