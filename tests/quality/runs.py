"""One `fuzz run` on the cpu backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from commands import fuzz


def run(target: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON value. What Triton's interpreter says of a finding is tested with the cross-checks."""
    with patch("fuzz.run.findings.bug_grader.cross_check", return_value={}):
        done = fuzz("run", target, "--backend", "cpu", "--json", "--corpus", folder, *more)
    assert done.out, done.err
    return done.code, done.json
