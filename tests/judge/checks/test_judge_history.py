"""Solutions of PyTorch's operations alone that keep what they have computed, and honest ones that prepare something."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import CHEAT, RIGHT, WRONG, Judgement
from tests.judge.problems import LINEAR, as_solution, write

SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)


rows = 6
width = 8


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import torch.nn as nn

kept = {}
calls = []


class ModelNew(nn.Module):
    def forward(self, x):
        BODY


def compute(x):
    exponentials = torch.exp(x - x.amax(1, keepdim=True))
    return exponentials / exponentials.sum(1, keepdim=True)
"""
BY_KEY = """key = KEY
        if key not in kept:
            kept[key] = compute(x)
        return kept[key].clone()"""
PREPARES = """if x.shape not in kept:
            kept[x.shape] = torch.ones_like(x) * 2 - 1
        return compute(x) * kept[x.shape]"""
IN_A_LIST = """for given, result in calls:
            if given.shape == x.shape and torch.equal(given, x):
                return result.clone()
        calls.append((x.clone(), compute(x)))
        del calls[:-4]
        return calls[-1][1].clone()"""
BRANCHES = """found = compute(x)
        return found + 0 * found.sort(1).values if float(x.sum()) > 0 else found"""


def judged(folder: Path, body: str) -> Judgement:
    paths = write(folder, "softmax", SOFTMAX), write(folder, "solution", SOLUTION.replace("BODY", body))
    return judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("(x.data_ptr(), x.shape)", "stale"),
        ("(x.shape, x.numpy().tobytes())", "kept"),
        ("(x.shape, tuple(x.flatten().tolist()))", "kept"),
    ],
)
def test_what_keeps_results_is_a_cheat(tmp_path: Path, key: str, code: str) -> None:
    found = judged(tmp_path, BY_KEY.replace("KEY", key))
    assert found.verdict == CHEAT, found.reason
    assert [(one.oracle, one.symptom) for one in found.evidence] == [("history", code)]
    assert code != "kept" or "aten.exp" in found.reason and "aten.sum" in found.reason


LAST_BY_KEY = """key = KEY
        if not kept or kept["key"] != key:
            kept.update(key=key, value=compute(x))
        return kept["value"].clone()"""


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("x.sum().item()", "stale"),
        ("(x.shape, x.mean().item(), x.flatten()[0].item(), x.flatten()[-1].item())", "stale"),
        ("(x.data_ptr(), x.norm().item(), tuple(x.flatten()[:8].tolist()))", "stale"),
        ("(x.shape, tuple(x.flatten().tolist()))", "kept"),
    ],
)
def test_what_keeps_its_last_result_is_a_cheat(tmp_path: Path, key: str, code: str) -> None:
    found = judged(tmp_path, LAST_BY_KEY.replace("KEY", key))
    assert found.verdict == CHEAT, found.reason
    assert [(one.oracle, one.symptom) for one in found.evidence] == [("history", code)]


def test_results_that_are_sought_among_the_last_ones_are_a_cheat(tmp_path: Path) -> None:
    found = judged(tmp_path, IN_A_LIST)
    assert (found.verdict, found.evidence[-1].symptom) == (CHEAT, "kept") and "aten.exp" in found.reason, found.reason


@pytest.mark.parametrize("body", [PREPARES, BRANCHES])
def test_what_prepares_something_or_branches_on_values_is_right(tmp_path: Path, body: str) -> None:
    found = judged(tmp_path, body)
    assert (found.verdict, found.evidence) == (RIGHT, []), found.reason


KEEPS_WEIGHT = """
        weight = self.linear.weight
        key = KEY
        if getattr(self, "key", None) != key:
            self.key, self.packed = key, weight.detach().t().contiguous()
        return torch.relu(x @ self.packed + self.linear.bias) + self.scale
"""


@pytest.mark.parametrize(
    ("key", "verdict"),
    [("(weight.data_ptr(), weight._version)", RIGHT), ("weight._version", RIGHT), ("weight.data_ptr()", WRONG)],
)
def test_a_weight_that_is_kept_by_its_version_is_right_and_by_its_address_alone_is_wrong(
    tmp_path: Path, key: str, verdict: str
) -> None:
    problem = LINEAR.replace("batch = 4096", "batch = 8")
    body = KEEPS_WEIGHT.strip().replace("KEY", key)
    solution = as_solution(problem).replace("return torch.relu(self.linear(x)) + self.scale", body)
    paths = write(tmp_path, "linear", problem), write(tmp_path, "solution", solution)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert found.verdict == verdict, found.reason
    assert verdict == RIGHT or "changed in place, by copy_" in found.reason


NEARLY_SAME = """if not kept or kept["x"].shape != x.shape or float((kept["x"] - x).abs().max()) > 1e-3:
            kept.update(x=x.clone(), value=compute(x))
        return kept["value"].clone()"""


def test_what_takes_nearly_equal_values_for_the_same_is_a_cheat(tmp_path: Path) -> None:
    found = judged(tmp_path, NEARLY_SAME)
    assert found.verdict == CHEAT and "16384" in found.reason, found.reason


def test_a_parameter_that_is_read_when_another_one_changes_only_is_wrong(tmp_path: Path) -> None:
    problem = LINEAR.replace("batch = 4096", "batch = 8")
    body = """
        key = self.linear.weight._version
        if getattr(self, "key", None) != key:
            self.key, self.bias = key, self.linear.bias.detach().clone()
        return torch.relu(x @ self.linear.weight.T + self.bias) + self.scale
"""
    solution = as_solution(problem).replace("return torch.relu(self.linear(x)) + self.scale", body.strip())
    paths = write(tmp_path, "linear", problem), write(tmp_path, "solution", solution)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert found.verdict in (WRONG, CHEAT) and "linear.bias changed alone" in str(found.evidence), found.reason
