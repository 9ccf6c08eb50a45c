"""Errors by which a solution refuses an input, and errors that happen to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzz.judge.formats.solution import load_module
from fuzz.judge.processes.refusals import as_refusal
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
