"""Errors by which a solution refuses an input, and errors that happen to it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fuzz.backends import BACKENDS
from fuzz.judge.formats.solution import load_module
from fuzz.judge.processes.refusals import as_refusal
from fuzz.judge.processes.requests import Load, Refusal
from fuzz.judge.processes.solution_worker import SolutionHandler
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
