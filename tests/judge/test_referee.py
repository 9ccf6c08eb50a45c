"""Solutions judged in processes of their own: the one that holds the solution never holds the problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.judgement import CHEAT, NOT_COMPARABLE, RIGHT, SOLUTION, UNSUPPORTED, WRONG, Judgement
from fuzz.judge.referee import JudgeOptions, judge
from fuzz.judge.score import score
from tests.judge.problems import DROPOUT, LABELS, LINEAR, RELU, as_solution, write

SMALL = LINEAR.replace("batch = 4096", "batch = 8")
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, at < count), 0.0), at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        BODY
"""
LAUNCH = "relu_kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)\n        "


def judged(folder: Path, problem: str, solution: str) -> Judgement:
    paths = write(folder, "problem", problem), write(folder, "solution", solution)
    return judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))


def test_pytorch_itself_is_right(tmp_path: Path) -> None:
    found = judged(tmp_path, SMALL, as_solution(SMALL))
    assert (found.verdict, found.own_rule, found.evidence) == (RIGHT, True, []), found.reason
    assert found.dims["features"][0] < 64 < found.dims["features"][1]


def test_zeros_are_wrong_at_the_values_that_the_problem_makes(tmp_path: Path) -> None:
    zeros = as_solution(SMALL).replace("torch.relu(self.linear(x)) + self.scale", "0 * self.linear(x)")
    found = judged(tmp_path, SMALL, zeros)
    assert (found.verdict, found.severity, found.own_rule) == (WRONG, "high", False)
    assert found.evidence[-1].input_class == "declared" and found.evidence[-1].verdict == "kernel"


def test_a_parameter_that_the_problem_makes_of_zeros_is_drawn_as_well(tmp_path: Path) -> None:
    found = judged(tmp_path, SMALL, as_solution(SMALL).replace(" + self.scale", ""))
    assert (found.verdict, found.severity, found.own_rule) == (WRONG, "medium", True)
    assert found.evidence[-1].input_class == "ordinary"


def test_labels_are_legal_at_all_dims(tmp_path: Path) -> None:
    assert judged(tmp_path, LABELS, as_solution(LABELS)).verdict == RIGHT


def test_another_shape_of_the_output_is_wrong(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, as_solution(RELU).replace("torch.relu(x)", "torch.relu(x)[None]"))
    assert found.verdict == WRONG and "has shape" in found.reason


def test_results_kept_by_address_are_a_cheat(tmp_path: Path) -> None:
    cached = "kept = {}\n\n" + as_solution(RELU).replace(
        "return torch.relu(x)", "return kept.setdefault((x.data_ptr(), x.shape), torch.relu(x)).clone()"
    )
    found = judged(tmp_path, RELU, cached)
    assert found.verdict == CHEAT and found.evidence[-1].symptom == "stale", found.reason


def test_a_kernel_is_right_and_its_launches_are_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, KERNEL.replace("BODY", LAUNCH + "return out"))
    assert found.verdict == RIGHT and found.launches > 10, found.reason


@pytest.mark.parametrize(
    ("body", "symptom"),
    [
        (LAUNCH + "return torch.relu(x)", "independent"),
        ("return torch.relu(x)", "unused"),
        (
            "try:\n            relu_kernel[(1,)](x)\n        except TypeError:\n            return torch.relu(x)",
            "fallback",
        ),
    ],
)
def test_kernels_on_which_nothing_depends_are_a_cheat(tmp_path: Path, body: str, symptom: str) -> None:
    found = judged(tmp_path, RELU, KERNEL.replace("BODY", body))
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, symptom), found.reason


def test_looking_at_frames_is_a_cheat(tmp_path: Path) -> None:
    looking = as_solution(RELU).replace("return torch", "sys._getframe(1); return torch")
    found = judged(tmp_path, RELU, "import sys\n" + looking)
    assert found.verdict == CHEAT and "sys._getframe" in found.reason


def test_what_is_random_cannot_be_compared(tmp_path: Path) -> None:
    assert judged(tmp_path, DROPOUT, as_solution(DROPOUT)).verdict == NOT_COMPARABLE


def test_weights_without_a_counterpart_cannot_be_compared(tmp_path: Path) -> None:
    found = judged(tmp_path, SMALL, as_solution(SMALL).replace("self.scale", "self.factor"))
    assert found.verdict == NOT_COMPARABLE and "scale" in found.reason


def test_a_solution_that_cannot_be_loaded_is_unsupported(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, "import no_such_module\n")
    assert found.verdict == UNSUPPORTED and "no_such_module" in found.reason
    assert (found.cause, score(found)) == (SOLUTION, 0.0)


def test_a_solution_that_refuses_what_the_problem_makes_is_wrong(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, as_solution(RELU).replace("return torch.relu(x)", "raise ValueError('never')"))
    assert found.verdict == WRONG and "refuses the inputs" in found.reason and "never" in found.reason


def test_a_solution_that_refuses_other_dims_is_right_without_a_score(tmp_path: Path) -> None:
    body = "assert len(x) == 37; return torch.relu(x)"
    found = judged(tmp_path, RELU, as_solution(RELU).replace("return torch.relu(x)", body))
    assert found.verdict == RIGHT and found.refused > 5 and score(found) == 0.0
