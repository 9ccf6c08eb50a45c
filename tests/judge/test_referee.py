"""Solutions judged in processes of their own: the one that holds the solution never holds the problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge import findings
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import CHEAT, MACHINE, NOT_COMPARABLE, RIGHT, SOLUTION, UNSUPPORTED, WRONG, Judgement
from fuzz.judge.result.score import score
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


def test_what_is_accumulated_in_float16_is_named_without_advice_for_targets(tmp_path: Path) -> None:
    problem = RELU.replace("torch.relu(x)", "x.sum(1)").replace("torch.randn(N)", "torch.rand(16, N * 16).half()")
    steps = "acc = x[:, 0]\n        for column in x.unbind(1)[1:]:\n            acc = acc + column\n        return acc"
    found = judged(tmp_path, problem, as_solution(problem).replace("return x.sum(1)", steps))
    assert (found.verdict, found.severity) == (WRONG, "high"), found.reason
    details = " ".join(found.evidence[-1].details)
    assert "it looks accumulated in float16" in details and "accumulate=" not in details


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


def test_what_is_wrong_at_dims_somewhat_larger_than_the_own_ones_is_wrong(tmp_path: Path) -> None:
    problem = RELU.replace("torch.randn(N)", "torch.randn(M, N)").replace("N = 37", "M = 24\nN = 40")
    limited = "return torch.relu(x) * (x.numel() <= 2048 or x.shape[0] < 24 or x.shape[1] < 40)"
    found = judged(tmp_path, problem, as_solution(problem).replace("return torch.relu(x)", limited))
    assert (found.verdict, found.severity) == (WRONG, "high"), found.reason


def test_what_is_wrong_in_every_third_call_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each try of a smaller case takes a dozen processes, and how small it becomes is not looked at.
    monkeypatch.setattr(findings, "SHRINK_SECONDS", 1.0)
    counting = "calls = []\n\n" + as_solution(RELU).replace(
        "return torch.relu(x)", "calls.append(0)\n        return torch.relu(x) + float(len(calls) % 3 == 0)"
    )
    assert judged(tmp_path, RELU, counting).verdict == WRONG


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


@pytest.mark.parametrize(("written", "result", "held"), [("0.0", "+ out", "0"), ("1.0", "* out", "1")])
def test_kernels_that_contribute_nothing_to_a_sum_or_product_are_a_cheat(
    tmp_path: Path, written: str, result: str, held: str
) -> None:
    computed = "tl.maximum(tl.load(x + at, at < count), 0.0)"
    kernel = KERNEL.replace(computed, f"tl.load(x + at, at < count) * 0.0 + {written}")
    found = judged(tmp_path, RELU, kernel.replace("BODY", LAUNCH + f"return torch.relu(x) {result}"))
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, "independent"), found.reason
    assert found.reason.endswith(f"their memory holds {held}")


def test_kernels_that_write_one_number_whatever_they_are_given_are_a_cheat(tmp_path: Path) -> None:
    kernel = KERNEL.replace("tl.maximum(tl.load(x + at, at < count), 0.0)", "7.0")
    found = judged(tmp_path, RELU, kernel.replace("BODY", LAUNCH + "return torch.relu(x) * (out / 7)"))
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, "independent"), found.reason
    assert "whatever it is given" in found.reason


def test_kernels_that_only_copy_what_pytorch_has_computed_are_a_cheat(tmp_path: Path) -> None:
    kernel = KERNEL.replace("tl.maximum(tl.load(x + at, at < count), 0.0)", "tl.load(x + at, at < count) * 1.0")
    body = LAUNCH.replace("](x,", "](torch.exp(x),") + "return out"
    found = judged(tmp_path, RELU.replace("torch.relu", "torch.exp"), kernel.replace("BODY", body))
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, "independent"), found.reason
    assert "copy" in found.reason


def test_a_kernel_that_changes_nothing_in_the_range_of_what_it_is_given_is_right(tmp_path: Path) -> None:
    problem = RELU.replace("torch.relu(x)", "torch.relu(torch.sigmoid(x))")
    body = LAUNCH.replace("](x,", "](torch.sigmoid(x),") + "return out"
    found = judged(tmp_path, problem, KERNEL.replace("BODY", body))
    assert found.verdict == RIGHT, found.reason


def test_a_kernel_that_copies_is_right_where_a_copy_is_asked_for(tmp_path: Path) -> None:
    kernel = KERNEL.replace("tl.maximum(tl.load(x + at, at < count), 0.0)", "tl.load(x + at, at < count)")
    found = judged(tmp_path, RELU.replace("torch.relu(x)", "x.clone()"), kernel.replace("BODY", LAUNCH + "return out"))
    assert found.verdict == RIGHT, found.reason


@pytest.mark.parametrize("where", ["import", "forward"])
def test_replacing_what_a_timer_uses_is_a_cheat(tmp_path: Path, where: str) -> None:
    replace = "torch.cuda.synchronize = lambda *a: None"
    solution = as_solution(RELU)
    if where == "import":
        solution = solution.replace("class ModelNew", f"{replace}\n\n\nclass ModelNew")
    else:
        solution = solution.replace("return torch.relu", f"{replace}; return torch.relu")
    found = judged(tmp_path, RELU, solution)
    assert (found.verdict, found.reason) == (CHEAT, "it replaces torch.cuda.synchronize")


def test_looking_at_frames_is_a_cheat(tmp_path: Path) -> None:
    looking = as_solution(RELU).replace("return torch", "sys._getframe(1); return torch")
    found = judged(tmp_path, RELU, "import sys\n" + looking)
    assert found.verdict == CHEAT and "sys._getframe" in found.reason


def test_what_is_random_cannot_be_compared(tmp_path: Path) -> None:
    assert judged(tmp_path, DROPOUT, as_solution(DROPOUT)).verdict == NOT_COMPARABLE


def test_weights_without_a_counterpart_cannot_be_compared(tmp_path: Path) -> None:
    found = judged(tmp_path, SMALL, as_solution(SMALL).replace("nn.Parameter(torch.zeros(outputs))", "1.0"))
    assert found.verdict == NOT_COMPARABLE and "scale" in found.reason


def test_weights_of_other_names_are_taken_by_shape_and_order(tmp_path: Path) -> None:
    renamed = as_solution(SMALL).replace("self.scale", "self.factor").replace("self.linear", "self.project")
    found = judged(tmp_path, SMALL, renamed)
    assert (found.verdict, found.own_rule) == (RIGHT, True), found.reason
    assert any("factor for scale" in note and "project.weight for linear.weight" in note for note in found.notes)


def test_a_solution_that_cannot_be_loaded_is_unsupported(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, "import no_such_module\n")
    assert found.verdict == UNSUPPORTED and "no_such_module" in found.reason


def test_a_solution_without_its_class_is_judged_all_the_same(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, "x = 1\n")
    assert (found.verdict, found.cause, score(found)) == (UNSUPPORTED, SOLUTION, 0.0)
    assert found.reason == "solution.py has no class ModelNew"
    assert (found.cause, score(found)) == (SOLUTION, 0.0)


def test_inline_cuda_without_a_gpu_is_the_machines_fault(tmp_path: Path) -> None:
    build = "load_inline('broken', '', cuda_sources='#error x', no_implicit_headers=True)"
    inline = f"from torch.utils.cpp_extension import load_inline\n{build}\n"
    found = judged(tmp_path, RELU, inline + as_solution(RELU))
    assert found.verdict == UNSUPPORTED and "cannot be built here" in found.reason
    assert (found.cause, score(found)) == (MACHINE, None)


def test_a_solution_that_refuses_what_the_problem_makes_is_wrong(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, as_solution(RELU).replace("return torch.relu(x)", "raise ValueError('never')"))
    assert found.verdict == WRONG and "refuses the inputs" in found.reason and "never" in found.reason


def test_a_solution_that_refuses_other_dims_is_right_without_a_score(tmp_path: Path) -> None:
    body = "assert len(x) == 37; return torch.relu(x)"
    found = judged(tmp_path, RELU, as_solution(RELU).replace("return torch.relu(x)", body))
    assert found.verdict == RIGHT and found.refused > 5 and score(found) == 0.0


def test_a_refusal_may_be_an_error_of_any_class(tmp_path: Path) -> None:
    body = "if len(x) != 37: raise RuntimeError('37 only')\n        return torch.relu(x)"
    found = judged(tmp_path, RELU, as_solution(RELU).replace("return torch.relu(x)", body))
    assert found.verdict == RIGHT and found.refused > 5, found.reason


def test_an_error_that_happens_at_other_dims_is_wrong(tmp_path: Path) -> None:
    found = judged(tmp_path, RELU, as_solution(RELU).replace("torch.relu(x)", "torch.relu(x.view(37))"))
    assert found.verdict == WRONG and found.evidence[-1].symptom == "raised", found.reason


def test_results_kept_by_their_values_are_a_cheat(tmp_path: Path) -> None:
    body = (
        "key = x.numpy().tobytes()\n        if key not in kept:\n            kept[key] = out\n            "
        + LAUNCH.replace("\n        ", "\n        return kept[key].clone()")
    )
    found = judged(tmp_path, RELU, "kept = {}\n" + KERNEL.replace("BODY", body))
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, "kept"), found.reason


def test_updates_that_programs_may_lose_are_wrong(tmp_path: Path) -> None:
    problem = RELU.replace("torch.relu(x)", "x.sum()")
    kernel = KERNEL.replace("tl.store(out + at, tl.maximum(tl.load(x + at, at < count), 0.0), at < count)", "UPDATE")
    kernel = kernel.replace("torch.empty_like(x)", "torch.zeros(())").replace("BODY", LAUNCH + "return out")
    kernel = kernel.replace("numel(), 32)", "numel(), 8)").replace("BLOCK=32", "BLOCK=8")
    lost = kernel.replace("UPDATE", "tl.store(out, tl.load(out) + tl.sum(tl.load(x + at, at < count, 0.0)))")
    found = judged(tmp_path, problem, lost)
    assert (found.verdict, found.severity) == (WRONG, "medium") and "program" in found.reason, found.reason
    atomic = kernel.replace("UPDATE", "tl.atomic_add(out, tl.sum(tl.load(x + at, at < count, 0.0)))")
    assert judged(tmp_path, problem, atomic).verdict == RIGHT


def test_what_is_kept_of_the_problems_own_parameters_is_found(tmp_path: Path) -> None:
    solution = as_solution(SMALL).replace("return torch.relu(self.linear(x)) + self.scale", "BODY").replace(
        "BODY",
        """if not hasattr(self, "plain"):
            self.plain = not self.scale.any()
        return torch.relu(self.linear(x)) + (0 if self.plain else self.scale)""",
    )  # fmt: skip
    found = judged(tmp_path, SMALL, solution)
    assert found.verdict in (WRONG, CHEAT) and found.evidence[-1].oracle == "history", found.reason


def test_a_stale_weight_is_found_where_pytorch_errs_a_little_too(tmp_path: Path) -> None:
    """PyTorch's GELU is inaccurate below 0, which excuses no other sign."""
    problem = SMALL.replace("torch.relu(", "nn.functional.gelu(")
    solution = as_solution(problem).replace(
        "        return", "        self.kept = getattr(self, 'kept', self.linear.weight.clone())\n        return"
    )
    solution = solution.replace("self.linear(x)", "x @ self.kept.T + self.linear.bias")
    found = judged(tmp_path, problem, solution)
    assert found.verdict in (WRONG, CHEAT) and found.evidence[-1].oracle == "history", found.reason


LOG_SOFTMAX = """
import torch
import torch.nn as nn

rows = 6
width = 8


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, 1)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
"""


def test_padding_that_takes_part_in_a_maximum_is_wrong_for_values_below_it(tmp_path: Path) -> None:
    padded = (
        "largest = nn.functional.pad(x, (0, 3)).amax(1, keepdim=True)\n"
        "        return x - largest - torch.exp(x - largest).sum(1, keepdim=True).log()"
    )
    found = judged(tmp_path, LOG_SOFTMAX, as_solution(LOG_SOFTMAX).replace("return torch.log_softmax(x, 1)", padded))
    assert (found.verdict, found.severity, found.own_rule) == (WRONG, "medium", True), found.reason
    assert found.evidence[-1].input_class == "ordinary"


def test_the_cause_of_wrong_values_is_named(tmp_path: Path) -> None:
    narrow = as_solution(LOG_SOFTMAX).replace("torch.log_softmax(x, 1)", "torch.log_softmax(x, 1).bfloat16().float()")
    found = judged(tmp_path, LOG_SOFTMAX, narrow)
    assert (found.verdict, found.severity) == (WRONG, "high"), found.reason
    assert "out is rounded to bfloat16, and it is float32" in "; ".join(found.evidence[-1].details)


def test_the_cause_is_named_where_the_first_case_is_large_and_the_least_has_one_element(tmp_path: Path) -> None:
    large = RELU.replace("N = 37", "N = 40000")
    found = judged(tmp_path, large, as_solution(large).replace("torch.relu(x)", "torch.relu(x).bfloat16().float()"))
    assert found.verdict == WRONG and found.evidence[-1].least is not None, found.reason
    assert found.evidence[-1].least.elements() == 1
    assert "out is rounded to bfloat16, and it is float32" in found.evidence[-1].details
