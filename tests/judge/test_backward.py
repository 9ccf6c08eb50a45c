"""Gradients of solutions, compared where they are differentiable."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.referee import GRADIENTS, JudgeOptions, judge
from fuzz.judge.result.judgement import RIGHT, WRONG, Judgement
from tests.judge.problems import as_solution, write

PROBLEM = """
import torch
import torch.nn as nn

N = 8


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(n))

    def forward(self, x):
        return torch.exp(x) * self.scale


def get_inputs():
    return [torch.rand(4, N)]


def get_init_inputs():
    return [N]
"""
FUNCTION = """
import torch
import torch.nn as nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, scale):
        context.save_for_backward(x, scale)
        return torch.exp(x) * scale

    @staticmethod
    def backward(context, gradient):
        x, scale = context.saved_tensors
        return gradient * torch.exp(x) * scale, FACTOR * (gradient * torch.exp(x)).sum(0)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(n))

    def forward(self, x):
        return RESULT
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def exp_kernel(x, scale, out, n, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.exp(tl.load(x + at, at < count)) * tl.load(scale + at % n, at < count)
    tl.store(out + at, value, at < count)


def launch(x, scale):
    out = torch.empty_like(x)
    exp_kernel[(triton.cdiv(x.numel(), 64),)](x.contiguous(), scale, out, x.shape[-1], x.numel(), BLOCK=64)
    return out
"""


def judged(folder: Path, result: str, factor: str = "1.0", kernel: str = "") -> Judgement:
    solution = FUNCTION.replace("RESULT", result).replace("FACTOR", factor) + kernel
    paths = write(folder, "problem", PROBLEM), write(folder, "solution", solution)
    return judge(JudgeOptions(*paths, backend="cpu", seconds=0))


@pytest.mark.parametrize(("factor", "verdict"), [("1.0", RIGHT), ("1.001", WRONG)])
def test_gradients_of_parameters_are_compared(tmp_path: Path, factor: str, verdict: str) -> None:
    found = judged(tmp_path, "Scaled.apply(x, self.scale)", factor)
    assert found.verdict == verdict and GRADIENTS in found.kinds, found.reason
    if verdict == WRONG:
        assert found.evidence[-1].outputs == ("dscale",) and found.severity == "high"


def test_a_kernel_that_autograd_does_not_follow_promises_no_gradient(tmp_path: Path) -> None:
    found = judged(tmp_path, "launch(x, self.scale) + 0 * x", kernel=KERNEL)
    assert found.verdict == RIGHT and GRADIENTS not in found.kinds, found.reason


WITHOUT_RULE = """
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient + 0 * torch.igamma(gradient.abs() + 1, gradient.abs() + 1)


class Model("""


def test_a_backward_without_a_rule_leaves_the_outputs_comparable(tmp_path: Path) -> None:
    doubled = PROBLEM.replace("class Model(", WITHOUT_RULE).replace("torch.exp(x)", "Doubled.apply(x)")
    paths = write(tmp_path, "problem", doubled), write(tmp_path, "solution", as_solution(doubled))
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0))
    assert found.verdict == RIGHT and GRADIENTS not in found.kinds, found.reason
