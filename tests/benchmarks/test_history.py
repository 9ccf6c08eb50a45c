"""History: a bug of a release is found on it and absent from the one that repaired it, by an ordinary target."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "def mean(x):\n    return x.sum(-1) / {count}\n"
TARGET = """
from fuzz import option, size, target, tensor
from tinylib import mean

M, N = size("M", 1, 64), size("N", 1, 64)

@target(x=tensor(M, N), dtypes=("float32",), reference=lambda x: dict(y=x.mean(-1)))
def tiny_mean(x):
    return dict(y=mean(x))
"""


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command, with two releases of a library in its store, of which the older one has a bug."""
    spec = importlib.util.spec_from_file_location("history", ROOT / "benchmarks" / "history.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "history", made)
    spec.loader.exec_module(made)
    for version, count in (("1", "(x.shape[-1] + 1)"), ("2", "x.shape[-1]")):
        folder = tmp_path / f"tinylib-{version}" / "tinylib"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(LIBRARY.format(count=count))
    (tmp_path / "fuzz_tiny.py").write_text(TARGET)
    monkeypatch.setattr(made, "STORE", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "tinylib-2"))
    return made


def test_a_bug_is_found_on_its_release_and_gone_from_the_next(history: ModuleType, tmp_path: Path) -> None:
    target = f"{tmp_path / 'fuzz_tiny.py'}:tiny_mean"
    row = history.measured(history.Bug("T1", "tinylib", "1", "2", target, "divided by one more"), "--cases", "30")
    assert (row["found"], row["stayed"], row["others"], row["error"]) == (True, 0, [], "")
    assert (row["oracle"], row["output"], row["dims"]) == ("accuracy", "y", {"M": 1, "N": 1})
    assert row["cases"] > 0 and row["fixed_cases"] > 0
    assert "accuracy value of y" in history.table([row]) and "no, in" in history.table([row])


def test_what_was_not_found_is_told_as_such(history: ModuleType) -> None:
    bug = history.Bug("T1", "tinylib", "1", "2", "tiny", "divided by one more")
    row = history.row(bug, {"cases": 7}, [], [])
    assert "| **no**: not in 7 cases |" in history.table([row])


FOUND = {
    "oracle": "accuracy", "output": "y", "symptom": "value", "first_seconds": 3.0, "first_case": 1, "dims": {"M": 1},
    "message": "y is wrong", "path": "entry", "verdict": "kernel",
}  # fmt: skip


def ran(history: ModuleType, monkeypatch: pytest.MonkeyPatch, again: dict[str, object]) -> dict[str, object]:
    """The row of a bug that is found on its release, and of which a run of the fixed one comes to this."""
    monkeypatch.setattr(history, "searched", lambda release, *_: again if "2" in release.name else ON_THE_BUGGY)
    monkeypatch.setattr(history, "vanished", lambda *_: [FOUND])
    monkeypatch.setattr(history, "signature", lambda found, _: found["symptom"])
    bug = history.Bug("T1", "tinylib", "1", "2", "tiny", "divided by one more")
    made: dict[str, object] = history.measured(bug, "--cases", "30") | {"seconds": 60}
    return made


ON_THE_BUGGY = {"cases": 10, "findings": [FOUND]}


@pytest.mark.parametrize(
    ("again", "shown", "found"),
    [
        ({"error": "every case was refused", "findings": []}, "**not known**: every case was refused", False),
        ({"cases": 0, "findings": []}, "**not known**: no case", False),
        ({"cases": 7, "findings": [FOUND]}, "**yes**", False),
        ({"cases": 7, "findings": []}, "no, in 7 cases", True),
    ],
)
def test_a_bug_is_found_only_where_the_fixed_release_has_cases_without_it(
    history: ModuleType, monkeypatch: pytest.MonkeyPatch, again: dict[str, object], shown: str, found: bool
) -> None:
    row = ran(history, monkeypatch, again)
    assert history.is_found(row) is found
    assert history.table([row]).splitlines()[-1].endswith(f"| {shown} |")


def test_the_headline_tells_what_stayed_and_what_has_no_case(
    history: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings: tuple[dict[str, object], ...] = ({"cases": 7, "findings": [FOUND]}, {"findings": [], "error": "it ended"})
    rows = [ran(history, monkeypatch, again) for again in endings]
    assert history.page(rows).startswith(
        "0 of 20 found, 2 run, 1 again on the fixed release, 1 without a case on it; for 60 s"
    )
