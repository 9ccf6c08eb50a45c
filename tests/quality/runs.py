"""One `fuzz run` on the cpu backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from commands import fuzz

from fuzz.shrink.passes import values


def run(target: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON value. What Triton's interpreter says of a finding is tested with the cross-checks.

    The smallest values are sought among fewer: of the least case, only its dims are looked at.
    """
    no_cross_checks = patch("fuzz.run.findings.bug_postprocessor.cross_check", return_value={})
    with no_cross_checks, patch.object(values, "MAX_ASSIGNMENTS", 100):
        done = fuzz("run", target, "--backend", "cpu", "--json", "--corpus", folder, *more)
    assert done.out, done.err
    return done.code, done.json
