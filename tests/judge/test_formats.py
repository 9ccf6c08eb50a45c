"""Problems and solutions in the formats of GPU MODE and FlashInfer-Bench."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fuzz.judge.formats.gpumode import GpuModeProblem
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import CHEAT, PROBLEM, RIGHT, UNSUPPORTED, WRONG, Judgement

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
tests:
  - {size: 33, seed: 4}
benchmarks:
  - {size: 20000, seed: 5}
  - {size: 1000000000000, seed: 5}
"""
REFERENCE = """
import torch
from task import input_t


def generate_input(size, seed):
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    x = torch.randn(size, device="cuda", generator=generator)
    return x, torch.empty(1, device="cuda")


def ref_kernel(data: input_t):
    x, output = data
    return x.to(torch.float64).sum().to(torch.float32)
"""
SUBMISSION = """
from task import input_t


def custom_kernel(data: input_t):
    x, output = data
    output[0] BODY
    return output[0]
"""
DEFINITION = {
    "name": "scaled_sum",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 8}},
    "inputs": {"x": {"shape": ["rows", "width"], "dtype": "float16"}, "factor": {"shape": None, "dtype": "float32"}},
    "outputs": {"y": {"shape": ["rows"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(x, factor):\n    assert x.shape[1] == 8\n"
    "    return (x.to(torch.float32).sum(1) * factor).to(x.dtype)\n",
}


def write_task(folder: Path, reference: str) -> Path:
    task = folder / "task"
    task.mkdir()
    files = {"task.yml": TASK, "reference.py": reference, "task.py": "input_t = tuple\n"}
    for name, text in files.items():
        (task / name).write_text(text, encoding="utf-8")
    return task


def judged_submission(folder: Path, body: str, reference: str = REFERENCE) -> Judgement:
    task, submission = write_task(folder, reference), folder / "submission.py"
    submission.write_text(SUBMISSION.replace("BODY", body), encoding="utf-8")
    return judge(JudgeOptions(task, submission, "gpumode", "cpu", seconds=0))


def test_a_submission_that_writes_its_output_is_right(tmp_path: Path) -> None:
    found = judged_submission(tmp_path, "= x.sum()")
    assert (found.verdict, found.own_rule) == (RIGHT, True), found.reason
    assert found.dims["size"][0] < 33 and found.dims["size"][1] == 20000
    assert any("size=1000000000000" in note for note in found.notes), found.notes


def test_a_submission_that_adds_to_unwritten_memory_is_wrong(tmp_path: Path) -> None:
    assert judged_submission(tmp_path, "+= x.sum()").verdict == WRONG


def test_a_submission_that_is_wrong_at_the_size_of_a_benchmark_only_is_wrong(tmp_path: Path) -> None:
    found = judged_submission(tmp_path, "= x.sum() * (0.99 if x.numel() > 18000 else 1)")
    assert (found.verdict, found.severity) == (WRONG, "high"), found.reason


def test_a_task_that_cannot_be_imported_is_unsupported(tmp_path: Path) -> None:
    found = judged_submission(tmp_path, "= x.sum()", f"import no_such_module\n{REFERENCE}")
    assert (found.verdict, found.cause) == (UNSUPPORTED, PROBLEM)
    assert found.reason.startswith("the problem cannot be loaded") and "no_such_module" in found.reason


def judged_definition(folder: Path, source: str, definition: Mapping[str, Any] = DEFINITION) -> Judgement:
    solution = {
        "name": "s",
        "spec": {"language": "python", "entry_point": "main.py::run", "destination_passing_style": True},
        "sources": [{"path": "main.py", "content": source}],
    }
    paths = folder / "definition.json", folder / "solution.json"
    for path, value in zip(paths, (definition, solution), strict=True):
        path.write_text(json.dumps(value), encoding="utf-8")
    return judge(JudgeOptions(*paths, "flashinfer", "cpu", seconds=0))


def test_a_solution_of_a_definition_fills_the_outputs_that_it_is_given(tmp_path: Path) -> None:
    found = judged_definition(tmp_path, "def run(x, factor, y):\n    y.copy_(x.float().sum(1) * factor)\n")
    assert (found.verdict, found.own_rule) == (RIGHT, True), found.reason


def test_small_outputs_that_pass_the_formats_rule_are_wrong(tmp_path: Path) -> None:
    source = "def run(x, factor, y):\n    y.copy_(x.float().sum(1) * factor + 0.004)\n"
    found = judged_definition(tmp_path, source)
    assert (found.verdict, found.own_rule) == (WRONG, True)


def test_a_definition_whose_reference_cannot_be_executed_is_unsupported(tmp_path: Path) -> None:
    definition = {**DEFINITION, "reference": "import no_such_module\n"}
    found = judged_definition(tmp_path, "def run(x, factor, y):\n    pass\n", definition)
    assert (found.verdict, found.cause) == (UNSUPPORTED, PROBLEM) and "no_such_module" in found.reason


def test_what_the_sources_of_a_solution_do_is_recorded(tmp_path: Path) -> None:
    source = "import sys\n\ndef run(x, factor, y):\n    sys._getframe(0)\n    y.copy_(x.float().sum(1) * factor)\n"
    found = judged_definition(tmp_path, source)
    assert found.verdict == CHEAT and "sys._getframe" in found.reason


def test_a_task_is_loaded_without_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, temporary = write_task(tmp_path, REFERENCE), tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert GpuModeProblem(task).reference.input_t is tuple
    for name in ("reference", "task"):
        del sys.modules[name]
    assert not list(temporary.iterdir()) and not (task / "__pycache__").exists()
