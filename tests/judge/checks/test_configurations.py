"""Solutions whose autotuners have a wrong configuration, or whose benchmarks write what the launch reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import WRONG
from tests.judge.problems import RELU, write

SOLUTION = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 16})], key=["count"])
@triton.jit
def relu_kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    STORE


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""
ADDS = "tl.atomic_add(out + at, tl.maximum(tl.load(x + at, at < count), 0.0), at < count)"
ADDS_WITH_ONE = "tl.store(out + at, tl.maximum(tl.load(x + at, at < count), (32 - BLOCK) / 1024), at < count)"


@pytest.mark.parametrize(("store", "found"), [(ADDS, "history/benchmark"), (ADDS_WITH_ONE, "accuracy/value")])
def test_every_configuration_may_win_and_what_its_benchmark_writes_stays(
    tmp_path: Path, store: str, found: str
) -> None:
    paths = write(tmp_path, "relu", RELU), write(tmp_path, "solution", SOLUTION.replace("STORE", store))
    judgement = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    last = judgement.evidence[-1]
    assert (judgement.verdict, last.severity, f"{last.oracle}/{last.symptom}") == (WRONG, "high", found)
