"""All targets of a file or a folder, and what a command does with each of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import fuzz

from fuzz.errors import TargetError
from fuzz.target.finder import find_targets

HEAD = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 8)
"""
BODY = """

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x))
def NAME(x):
    return dict(y=FACTOR * x)
"""


def write(path: Path, **factors: int) -> Path:
    """A file of targets: each multiplies by a factor, where 2 is right."""
    bodies = [BODY.replace("NAME", name).replace("FACTOR", str(factor)) for name, factor in factors.items()]
    path.write_text(HEAD + "".join(bodies))
    return path


def test_a_file_with_several_targets_names_each_one(tmp_path: Path) -> None:
    path = write(tmp_path / "fuzz_two.py", one=2, two=2)
    assert find_targets(str(path)) == [f"{path}:one", f"{path}:two"]
    assert find_targets(f"{path}:two") == [f"{path}:two"]


def test_what_names_one_target_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "fuzz_one.py", one=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax").mkdir()
    for text in (str(path), "fuzz_one.py", "softmax", "liger/softmax", "nowhere.py", "no_such_target"):
        assert find_targets(text) == [text]


def test_a_folder_names_the_targets_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    two = write(tmp_path / "fuzz_two.py", one=2, two=2)
    deep = write(tmp_path / "deeper" / "fuzz_deep.py", deep=2)
    write(tmp_path / "_private.py", private=2)
    assert find_targets(str(tmp_path)) == [f"{deep}:deep", f"{two}:one", f"{two}:two"]


OWN = """
import fuzz

N = fuzz.size("N", 1, 8)

def mine(**declaration):
    return fuzz.target(x=fuzz.tensor(N), **declaration)

@mine(name="first")
def one(x):
    return dict(y=x + 1)

@mine(name="second")
def two(x):
    return dict(y=x + 1)
"""


def test_a_decorator_of_ones_own_declares_targets(tmp_path: Path) -> None:
    path = tmp_path / "fuzz_own.py"
    path.write_text(OWN)
    assert find_targets(str(path)) == find_targets(str(tmp_path)) == [f"{path}:first", f"{path}:second"]


def test_a_folder_without_targets_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="has no target"):
        find_targets(str(tmp_path))


def test_run_goes_through_all_targets_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "fuzz_both.py", good=2, better=2)
    done = fuzz("run", path, "--cases", 3, "--backend", "cpu", "--json", "--junit", tmp_path / "junit.xml")
    assert done.code == 0, done.err
    assert [(one["target"], one["cases"]) for one in done.json["runs"]] == [(f"{path}:good", 3), (f"{path}:better", 3)]
    assert (tmp_path / "junit.xml").is_file()


def test_a_folder_that_is_removed_while_they_are_looked_for_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gone = write(tmp_path / "fuzz_one.py", one=2), tmp_path / "gone"
    gone.mkdir()
    scan = os.scandir

    def scan_without(folder: object) -> object:
        if str(folder) == str(gone):
            raise FileNotFoundError(folder)
        return scan(folder)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", scan_without)
    assert find_targets(str(tmp_path)) == [f"{path}:one"]
