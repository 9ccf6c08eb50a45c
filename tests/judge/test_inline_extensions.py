"""What a machine lacks to build the C++ or CUDA of a solution, and where that is built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from fuzz.judge.formats.inline_extensions import build_extensions_in, describe_missing_tool
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import RIGHT, WRONG
from tests.judge.problems import RELU, write

NAMED = """
import os
from pathlib import Path
import torch

built = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "name_of_many_samples"
if not built.exists():
    built.write_text("AMOUNT")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + float(built.read_text())
"""


def failure(**options: str) -> Exception:
    """What PyTorch raises for an extension that cannot be built."""
    with pytest.raises(Exception) as caught:
        cpp_extension.load_inline("broken", no_implicit_headers=True, **options)
    return caught.value


def test_what_is_missing_is_told_by_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "")
    build_extensions_in(tmp_path)
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: True)
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    error = failure(cpp_sources="", cuda_sources="#error here")
    assert "a GPU" in describe_missing_tool(error, has_gpu=False)
    assert "nvcc" in describe_missing_tool(error, has_gpu=True)
    assert (tmp_path / "broken").is_dir()
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: False)
    assert "ninja" in describe_missing_tool(error, has_gpu=True)


def test_broken_cpp_and_other_errors_are_no_fault_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: True)
    assert not describe_missing_tool(failure(cpp_sources="#error here"), has_gpu=False)
    with pytest.raises(TypeError) as caught:
        torch.relu("x")  # type: ignore[arg-type]
    assert not describe_missing_tool(caught.value, has_gpu=False)


def test_solutions_with_an_extension_of_one_name_are_built_apart(tmp_path: Path) -> None:
    problem, verdicts = write(tmp_path, "problem", RELU), []
    for amount in ("0", "1"):
        solution = write(tmp_path, f"solution_{amount}", NAMED.replace("AMOUNT", amount))
        verdicts.append(judge(JudgeOptions(problem, solution, backend="cpu", seconds=0.0)).verdict)
    assert verdicts == [RIGHT, WRONG]
