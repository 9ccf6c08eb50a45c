"""Solutions that launch kernels for values they were given before, whether or not the result comes from these."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzz.backends import DEFAULT
from fuzz.judge.checks.history import find_kept_behind_launches, make_calls
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.problem.target import make_target
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.launch_log import spoil
from fuzz.judge.processes.requests import Describe
from fuzz.judge.start_processes import start_processes
from fuzz.model.case import Case
from fuzz.worker.deadline import Deadline
from tests.judge.problems import RELU, write

PROBLEM = RELU.replace("torch.relu(x)", "torch.relu(x) * 2")
SOLUTION = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, at < count), 0.0) * 2, at < count)


def launch(x, out, count):
    double[(triton.cdiv(x.numel(), 32),)](x, out, count, BLOCK=32)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.given = self.kept = None

    def forward(self, x):
        out = torch.empty_like(x)
        BODY
"""
KEEPS = """if self.given is not None and torch.equal(self.given, x):
            launch(x, out, 1)
            return self.kept.clone()
        launch(x, out, x.numel())
        self.given, self.kept = x.clone(), out.clone()
        return out"""
COMPUTES = "launch(x, out, x.numel())\n        return out"
USES_OLD_MEMORY = """if self.kept is None or self.kept.shape != x.shape:
            self.kept = torch.empty_like(x)
        launch(x, self.kept, x.numel())
        return self.kept * 1"""
PREPARES = """if self.kept is None:
            self.kept = torch.empty(1)
            launch(torch.ones(1), self.kept, 1)
        launch(x, out, x.numel())
        return torch.relu(x) * self.kept"""


@pytest.mark.parametrize(
    ("body", "is_kept"), [(KEEPS, True), (COMPUTES, False), (USES_OLD_MEMORY, False), (PREPARES, False)]
)
def test_a_result_is_kept_where_kernels_matter_for_new_values_only(tmp_path: Path, body: str, is_kept: bool) -> None:
    paths = write(tmp_path, "problem", PROBLEM), write(tmp_path, "solution", SOLUTION.replace("BODY", body))
    options = JudgeOptions(*paths, backend="cpu", seconds=0.0)
    with start_processes(options, DEFAULT, Deadline()) as (problem, solution):
        description = problem.call(Describe())
        target = make_target(description)
        calls = make_calls(target, description, {"N": 37}, 1)
        found = find_kept_behind_launches(
            IsolatedWorker(problem, solution, description), Case(target.name, tuple(calls))
        )
    assert (found is not None) == is_kept
    assert found is None or found.symptom == "kept"


def test_what_is_spoiled_holds_no_number_of_use() -> None:
    tensors = [torch.zeros(2), torch.zeros(1).expand(3), torch.zeros(2, dtype=torch.int64)]
    tensors += [torch.zeros(2, dtype=torch.uint8), torch.zeros(2, dtype=torch.bool)]
    spoil(tensors)
    assert all(bool(one.isnan().all()) for one in tensors[:2])
    assert [one.tolist() for one in tensors[2:]] == [[-1, -1], [1, 1], [True, True]]
