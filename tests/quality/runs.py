"""One `fuzz run` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FUZZ = [sys.executable, "-m", "fuzz"]


def run(target: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON value."""
    command = [*FUZZ, "run", target, "--backend", "cpu", "--json", "--corpus", str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)
