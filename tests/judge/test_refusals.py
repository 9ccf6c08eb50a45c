"""Errors by which a solution refuses an input, and errors that happen to it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fuzz.backends import BACKENDS
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError
from fuzz.judge.formats.solution import load_module
from fuzz.judge.processes.launch_log import LaunchLog
from fuzz.judge.processes.refusals import as_refusal
from fuzz.judge.processes.requests import Load, Refusal, SolutionReport
from fuzz.judge.processes.solution_worker import SolutionHandler
from fuzz.model.case import Call, Case
from fuzz.model.outcome import Raised
from tests.judge.problems import write

SOURCE = """
import torch

def stated(x):
    if len(x) != 4:
        raise RuntimeError(
            "only 4 elements")

def happens(x):
    return x.view(4)

def reported(x):
    try:
        return x.view(4)
    except RuntimeError as error:
        raise RuntimeError("the kernel fails") from error

def asserted(x):
    assert len(x) == 4
"""


@pytest.mark.parametrize(
    ("function", "refuses"), [("stated", True), ("asserted", True), ("happens", False), ("reported", False)]
)
def test_only_what_the_solution_states_is_a_refusal(tmp_path: Path, function: str, refuses: bool) -> None:
    module = load_module(write(tmp_path, "solution", SOURCE))
    with pytest.raises((RuntimeError, AssertionError)) as raised:
        getattr(module, function)(torch.ones(5))
    assert isinstance(as_refusal(raised.value), ValueError | AssertionError) == refuses


def test_a_process_that_cannot_use_the_gpu_is_no_fault_of_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_isInBadFork", lambda: True, raising=False)
    process = SimpleNamespace(backend=BACKENDS["cuda"])
    refusal = SolutionHandler.__call__(process, Load())  # type: ignore[arg-type]
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "UnsupportedHere"
    assert "has initialised CUDA" in refusal.text


class Broken(Backend):
    """A device that says after each call what its launches did wrong."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def synchronize(self) -> None:
        raise self.error

    def is_fatal(self, error: BaseException) -> bool:
        return "CUDA error" in str(error)


def process_on(device: Backend) -> Any:
    """A solution's process that calls a function of nothing on a device."""
    process = SolutionHandler.__new__(SolutionHandler)
    process.backend, process.conduct = device, Mock(watch=nullcontext)
    process.place = lambda call, earlier: {}  # type: ignore[method-assign]
    process.launch = lambda **arguments: {"y": torch.ones(1)}  # type: ignore[method-assign]
    return process


def test_several_calls_that_leave_a_device_on_which_nothing_runs_end_the_process() -> None:
    request: Any = SimpleNamespace(
        steps=((0, False),), settings=[None], seconds=60.0, spoiled=(), case=Case("y", (Call({}, {}),))
    )
    lost, other = RuntimeError("CUDA error: an illegal memory access"), RuntimeError("no kernel image")
    with pytest.raises(FatalError) as caught:
        process_on(Broken(lost)).run_steps(request, LaunchLog(leave_out=False))
    assert isinstance(caught.value.outcome, Raised) and str(lost) in caught.value.outcome.message
    early = process_on(Broken(lost))
    early.launch = Mock(side_effect=ValueError("it says so before the device does"))
    with pytest.raises(FatalError):
        early.run_steps(request, LaunchLog(leave_out=False))
    report = process_on(Broken(other)).run_steps(request, LaunchLog(leave_out=False))
    assert isinstance(report, SolutionReport) and isinstance(report.outcome, Raised)
