"""AI-bench's specs: YAML beside a problem that gives its inputs, dims and dtypes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.errors import UsageError
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.formats.spec import find_spec, read_spec
from fuzz.judge.problem.description import Variant
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import RIGHT, WRONG, Judgement
from tests.judge.problems import write

NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = nn.LayerNorm(shape)

    def forward(self, x):
        return self.ln(x)


batch_size, features, width = 16, 64, 256


def get_inputs():
    return [torch.rand(batch_size, features, width)]


def get_init_inputs():
    return [(features, width)]
"""
SPEC = """
inputs:
  x:
    shape: [BATCH, FEATURES, WIDTH]
    dtype: inherit

inits:
  - dim: SHAPE

ci:
  - params: [x]
    dtype: bfloat16
    dims: {BATCH: 2, FEATURES: 4, WIDTH: 12, SHAPE: [4, 12]}

bench-cpu:
  - params: [x]
    dtype: float32
    dims: {BATCH: 3, FEATURES: 4, WIDTH: 16, SHAPE: [4, 16]} # a comment
    flop: "2*BATCH"

bench-gpu:
  - params: [x]
    dtype: float32
    dims: {BATCH: 65536, FEATURES: 256, WIDTH: 4096, SHAPE: [256, 4096]}
    rtol: 1.0e-03
"""
WRONG_IN_BFLOAT16 = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = nn.LayerNorm(shape)

    def forward(self, x):
        return self.ln(x) * (1.5 if x.dtype == torch.bfloat16 else 1.0)
"""
VALUES = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, p, sign, label, keep):
        assert torch.equal(x, x.tril()) and bool(((label >= 0) & (label < x.shape[0])).all())
        return (x @ p) * sign[:, None] * keep + label[:, None]
"""
VALUES_SPEC = """
inputs:
  X: {shape: [N, N], dtype: inherit, inits: [tril]}
  P: {shape: [N, N], dtype: inherit, inits: [scale, softmax]}
  S: {shape: [N], dtype: inherit, inits: [rademacher]}
  L: {shape: [N], dtype: int64, range: [0, N]}
  K: {shape: [N, N], dtype: bool}
ci:
  - params: [X, P, S, L, K]
    dtype: float32
    dims: {N: 6}
"""


def judged(folder: Path, solution: str, spec: Path | None = None) -> Judgement:
    paths = write(folder, "norm", NORM), write(folder, "solution", solution)
    return judge(JudgeOptions(*paths, backend="cpu", seconds=0.0, spec=spec))


def test_the_variants_of_a_spec_beside_the_problem_are_its_dims_and_dtypes(tmp_path: Path) -> None:
    (tmp_path / "norm.yaml").write_text(SPEC, encoding="utf-8")
    found = judged(tmp_path, NORM.replace("class Model(", "class ModelNew("))
    assert (found.verdict, found.evidence) == (RIGHT, []), found.reason
    assert "variants that the problem states" in found.kinds
    assert [note for note in found.notes if "float32 BATCH=65536" in note and "bfloat16" not in note]
    # The dims that the constructor takes as a list follow the axes of the input.
    assert all(least < most for least, most in (found.dims["FEATURES"], found.dims["WIDTH"]))


def test_a_dtype_that_a_variant_states_counts_like_the_first(tmp_path: Path) -> None:
    (tmp_path / "norm.yaml").write_text(SPEC, encoding="utf-8")
    found = judged(tmp_path, WRONG_IN_BFLOAT16)
    assert (found.verdict, found.severity, found.own_rule) == (WRONG, "high", True), found.reason
    least = found.evidence[-1].least
    assert least is not None and {one.dtype for one in least.last.arguments.values()} == {"bfloat16"}


def test_inputs_are_made_as_the_spec_says(tmp_path: Path) -> None:
    problem = write(tmp_path, "values", VALUES)
    (tmp_path / "values.yaml").write_text(VALUES_SPEC, encoding="utf-8")
    solution = write(tmp_path, "solution", VALUES.replace("class Model(", "class ModelNew("))
    found = judge(JudgeOptions(problem, solution, backend="cpu", seconds=0.0))
    assert (found.verdict, found.evidence) == (RIGHT, []), found.reason


def test_a_spec_has_the_variants_that_its_first_one_lets_it_state(tmp_path: Path) -> None:
    path = tmp_path / "norm.yaml"
    path.write_text(SPEC, encoding="utf-8")
    spec = read_spec(path)
    assert spec.own.dtype == "float32" and spec.own.sizes == {"BATCH": 3, "FEATURES": 4, "WIDTH": 16}
    assert spec.value("SHAPE", {"BATCH": 1, "FEATURES": 5, "WIDTH": 7}) == [5, 7]
    large = Variant((("BATCH", 65536), ("FEATURES", 256), ("WIDTH", 4096)), "float32")
    assert set(spec.others()) == {large, Variant((("BATCH", 2), ("FEATURES", 4), ("WIDTH", 12)), "bfloat16")}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("dtype: bfloat16", "dtype: int8", "the dtype of a variant is int8"),
        ("{BATCH: 2, ", "{", "a variant lacks BATCH"),
        ("inputs:", "input:", "'inputs' is missing"),
        ("params: [x]", "params: [y]", "'y' is missing"),
        ("  x:\n", "  - x\n", "is no spec"),
    ],
)
def test_what_is_no_spec_is_said(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "norm.yaml"
    path.write_text(SPEC.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError, match=reason):
        read_spec(path)


def test_a_maker_of_values_that_is_not_known_is_said(tmp_path: Path) -> None:
    (tmp_path / "norm.yaml").write_text(SPEC.replace("dtype: inherit", "dtype: inherit\n    inits: [odd]"), "utf-8")
    with pytest.raises(UsageError, match="makes x by odd"):
        judged(tmp_path, NORM)


def test_a_spec_is_found_beside_its_problem_or_in_the_folder_that_is_given(tmp_path: Path) -> None:
    problem = tmp_path / "problems" / "level1" / "norm.py"
    for level in ("level1", "level2"):
        (tmp_path / "specs" / level).mkdir(parents=True)
        (tmp_path / "specs" / level / "norm.yaml").write_text(SPEC, encoding="utf-8")
    problem.parent.mkdir(parents=True)
    assert find_spec(problem, None) is None
    assert find_spec(problem, tmp_path / "specs") == tmp_path / "specs" / "level1" / "norm.yaml"
    problem.with_suffix(".yaml").write_text(SPEC, encoding="utf-8")
    assert find_spec(problem, None) == problem.with_suffix(".yaml")
    with pytest.raises(UsageError, match="there is no spec"):
        find_spec(problem, tmp_path / "missing.yaml")


def test_another_spec_is_another_task(tmp_path: Path) -> None:
    problem, solution = write(tmp_path, "norm", NORM), write(tmp_path, "solution", NORM)
    task = JudgeTask(TaskOptions("kernelbench", "cpu", 0.0), str(problem), str(solution))
    plain = task.key
    (tmp_path / "norm.yaml").write_text(SPEC, encoding="utf-8")
    assert task.key != plain
    (tmp_path / "other.yaml").write_text(SPEC, encoding="utf-8")
    assert replace(task, spec=str(tmp_path / "other.yaml")).key == task.key
