"""Code by which the programs of a launch wait for each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.judge.waiting import waits

KERNEL = "def kernel(lock):\n    while LOCK(lock, 0, 1) == 1:\n        pass\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (KERNEL.replace("LOCK", "tl.atomic_cas"), True),
        ("from triton.language import atomic_xchg as swap\n" + KERNEL.replace("LOCK", "swap"), True),
        (KERNEL.replace("LOCK", "atomic_cas") + "not python at all\n", True),
        (KERNEL.replace("LOCK", "tl.atomic_add") + "# TODO use atomic_xchg\n", False),
        (KERNEL.replace("LOCK", "tl.atomic_add") + "'atomic_cas'\n", False),
        ("x = 1\n", False),
    ],
)
def test_code_waits_where_it_names_what_it_waits_by(tmp_path: Path, source: str, expected: bool) -> None:
    code, solution = tmp_path / "solution.py", tmp_path / "solution.json"
    code.write_text(source)
    solution.write_text(json.dumps({"sources": [{"path": "a.py", "content": "x = 1\n"}, {"content": source}]}))
    assert waits(code) is waits(solution) is expected
