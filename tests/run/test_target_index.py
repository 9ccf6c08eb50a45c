"""The index of targets: it holds until a file, a package or a variable changes, and is never needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.run import target_index
from fuzz.run.target_index import fingerprint, index_path, keep_listing, read_listing

LISTING = {"targets": [{"name": "one"}], "missing": ["two is not installed"]}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path / "cache"))


def test_a_listing_is_kept_until_a_targets_file_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(target_index, "BUILT_IN", tmp_path)
    path = tmp_path / "library" / "one.py"
    path.parent.mkdir()
    path.write_text("first")
    assert read_listing() is None
    keep_listing(LISTING)
    assert read_listing() == LISTING
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert read_listing() is None
    keep_listing(LISTING)
    (tmp_path / "two.py").write_text("")
    assert read_listing() is None


@pytest.mark.parametrize("variable", ["PATH", "CC", "CUDA_VISIBLE_DEVICES"])
def test_it_depends_on_what_decides_the_backends(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    before = fingerprint()
    monkeypatch.setenv(variable, "/other")
    assert fingerprint() != before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": 1}'])
def test_an_index_that_is_broken_is_made_anew(text: str) -> None:
    index_path().parent.mkdir(parents=True)
    index_path().write_text(text)
    assert read_listing() is None


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path / "file" / "cache"))
    keep_listing(LISTING)
    assert read_listing() is None


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["run", "gelu_bw", "--nothing"], ["run"], ["nothing"]])
def test_neither_help_nor_a_listing_nor_a_usage_error_imports_torch(arguments: list[str]) -> None:
    keep_listing(LISTING)
    program = f"import sys\nfrom fuzz.cli import exit_code\ncode = exit_code({arguments})\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "triton", "hypothesis"} & set(done.stdout.splitlines()[-1].split())
