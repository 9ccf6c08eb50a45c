"""Triton's key is computed once for an installed Triton, and is the same key."""

import os
from pathlib import Path

import pytest
from triton.runtime import cache

from fuzz.backends.triton_host import triton_key
from fuzz.backends.triton_host.triton_key import keep_triton_key, kept_key, key_path, recorded_key


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path / "cache"))


def fail() -> str:
    raise AssertionError("the key is computed")


def test_the_key_is_tritons_own_where_nobody_wrote_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_key, "recorded_key", str)
    computed = cache.triton_key()
    monkeypatch.setattr(cache, "triton_key", cache.triton_key)
    for _ in range(2):
        keep_triton_key()
        assert cache.triton_key() == computed
    assert key_path().read_text() == computed


def test_the_installers_hashes_are_the_key_until_a_file_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, record = tmp_path / "triton/__init__.py", tmp_path / "triton-3.7.1.dist-info/RECORD"
    for path, text in ((module, "code"), (record, "triton/__init__.py,sha256=A,4\nother.py,,")):
        path.parent.mkdir()
        path.write_text(text)
    monkeypatch.setattr(triton_key.triton, "__file__", str(module))
    assert (first := recorded_key())
    record.write_text("triton/__init__.py,sha256=B,4")
    assert recorded_key() not in ("", first)
    record.write_text("triton/__init__.py,,")
    assert recorded_key() == ""
    record.write_text("triton/__init__.py,sha256=A,4")
    os.utime(module, ns=(0, record.stat().st_mtime_ns + 1))
    assert recorded_key() == ""


def test_it_is_computed_once_for_the_same_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "libtriton.so"
    file.write_text("first")
    monkeypatch.setattr(triton_key, "triton_files", lambda: iter([file]))
    assert kept_key(lambda: "one") == "one"
    assert kept_key(fail) == "one"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert kept_key(lambda: "two") == "two"


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path / "file" / "cache"))
    assert [kept_key(lambda: "computed") for _ in range(2)] == ["computed"] * 2


@pytest.mark.parametrize("kept", ["", "\N{SNOWMAN}"])
def test_a_kept_key_that_is_broken_is_computed_again(kept: str) -> None:
    key_path().parent.mkdir()
    key_path().write_text(kept, encoding="utf-8")
    assert kept_key(lambda: "computed") == "computed"
