"""One cause is one finding however often it is hit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FUZZ = [sys.executable, "-m", "fuzz"]


def run(*arguments: str) -> dict[str, Any]:
    command = [*FUZZ, "run", *arguments, "--backend", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_a_thousand_hits_of_one_bug_are_one_finding(tmp_path: Path) -> None:
    value = run("gelu_bw", "--planted", "tanh_form", "--engine", "random", "--cases", "3000", "--corpus", str(tmp_path))
    assert len(value["findings"]) == 1 and value["findings"][0]["hits"] >= 1000
    assert len(list(tmp_path.rglob("*.yaml"))) == 1
