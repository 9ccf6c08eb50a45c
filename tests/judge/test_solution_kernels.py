"""The kernels of a solution are counted wherever its file keeps them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.judge.checks.launches import examine_launches
from fuzz.judge.formats.solution import MODULE, Solution, load_module
from fuzz.judge.processes.isolated_worker import RunLog
from tests.judge.problems import write

KERNEL = "@triton.jit\ndef kernel(x):\n    pass\n"
IN_CLASS = f"class Kernels:\n    {KERNEL.replace(chr(10), chr(10) + '    ').strip()}\n"
IN_FUNCTION = f"def make():\n    {KERNEL.replace(chr(10), chr(10) + '    ').strip()}\n    return kernel\n"


class AnySolution(Solution):
    def __init__(self, path: Path) -> None:
        self.module = load_module(path)

    def build(self, setting: object) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("source", "kernels"),
    [
        (KERNEL, 1),
        (IN_CLASS, 1),
        (IN_FUNCTION + "kept = [make(), make()]\n", 2),
        (IN_FUNCTION, 0),
        ("import fuzz_test_library\n", 0),
        ("from fuzz_test_library import kernel\n", 1),
    ],
)
def test_kernels_are_counted_that_the_file_makes_or_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, kernels: int
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    write(library, "fuzz_test_library", "import triton\n\n\n" + KERNEL)
    monkeypatch.setattr(sys, "path", [str(library), *sys.path])
    for name in (MODULE, "fuzz_test_library"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert AnySolution(write(tmp_path, "solution", "import triton\n\n\n" + source)).count_kernels() == kernels


def test_kernels_that_all_raise_are_a_fallback_wherever_they_are_defined() -> None:
    worker: Any = type("", (), {"log": RunLog(trouble="TypeError: no")})
    case: Any = None
    found = examine_launches(worker, case)
    assert found is not None and found.symptom == "fallback"
