"""A script takes along the files that its functions import while they run, and what those import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fuzz.report.reproducer.embedded_files import embed
from fuzz.report.reproducer.source import SourceCollector

SOURCE = """import whole

def launcher(x):
    from wrong import scale
    return scale(x) + whole.ONE

def unused(x):
    import other
"""


def test_files_that_functions_import_are_in_the_script(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "wrong.py").write_text("from factor import FACTOR\n\n\ndef scale(x):\n    return FACTOR * x\n")
    (files / "factor.py").write_text("FACTOR = 20  # '''quoted\\'''\n")
    (files / "whole.py").write_text("ONE = 1\n")
    (files / "other.py").write_text("raise ImportError\n")
    sources = SourceCollector()
    sources.add(files / "m.py", SOURCE)
    sources.require(files / "m.py", ["launcher"])
    program = "\n".join(["import sys", *embed(sources.embedded()), *sources.pieces(), "print(launcher(2))"])
    assert "other" not in program
    path = tmp_path / "alone.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "41\n", done.stderr


def test_a_script_without_such_files_has_no_statement_for_them() -> None:
    assert list(embed([])) == []
