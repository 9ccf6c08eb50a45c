"""The folder that keeps what later runs need: where it is, and that it does not grow beyond its bound."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuzz.cache import cache_folder, cache_items, prune_cache, use_cache_folder
from fuzz.errors import UsageError

DAY = 86400.0


def fill(path: Path, size: int, days: float) -> Path:
    """A file that was last used so many days ago, when its folder was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    for used in (path, path.parent):
        os.utime(used, (time.time() - days * DAY,) * 2)
    return path


def test_triton_keeps_its_kernels_in_the_folder_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.delenv("FUZZ_CACHE", raising=False)
    use_cache_folder()
    assert "TRITON_CACHE_DIR" not in os.environ
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    use_cache_folder()
    assert os.environ["TRITON_CACHE_DIR"] == "/elsewhere"
    monkeypatch.delenv("TRITON_CACHE_DIR")
    use_cache_folder()
    assert os.environ.pop("TRITON_CACHE_DIR") == str(tmp_path / "triton") and cache_folder() == tmp_path


def test_what_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "1")
    oldest = fill(tmp_path / "triton" / "KEY1" / "kernel.c", 300_000, 9)
    older = fill(tmp_path / "triton" / "cpu-kernels" / "a.so", 300_000, 8)
    newer = fill(tmp_path / "triton" / "KEY2" / "kernel.c", 300_000, 7)
    prune_cache()
    assert oldest.exists() and older.exists() and newer.exists()
    fill(tmp_path / "triton" / "KEY3" / "kernel.c", 300_000, 6)
    prune_cache()
    assert not oldest.parent.exists() and not older.exists() and newer.exists()


def test_what_is_in_use_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "1")
    used = fill(tmp_path / "triton" / "KEY" / "kernel.c", 3_000_000, 0)
    prune_cache()
    assert used.exists()


def test_a_folder_into_which_a_process_begins_to_compile_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "1")
    fill(tmp_path / "triton" / "KEY1" / "kernel.c", 3_000_000, 0)
    made = tmp_path / "triton" / "KEY2"
    made.mkdir()
    prune_cache()
    assert made.exists()


def test_what_cannot_be_removed_ends_neither_the_pruning_nor_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As root removes any file, the system's refusal is feigned."""
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "1")
    foreign, ours = fill(tmp_path / "foreign", 600_000, 9), fill(tmp_path / "ours", 600_000, 8)
    newer = fill(tmp_path / "newer", 600_000, 7)
    unlink = Path.unlink

    def refuse(path: Path, *arguments: bool) -> None:
        if path == foreign:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, *arguments)

    monkeypatch.setattr(Path, "unlink", refuse)
    prune_cache()
    assert foreign.exists() and not ours.exists() and not newer.exists()


def test_a_link_that_leads_nowhere_hides_nothing_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    inside = fill(tmp_path / "KEY" / "kernel.c", 3, 1)
    for folder in (tmp_path, inside.parent):
        for number in range(4):
            (folder / f"link-{number}").symlink_to(tmp_path / "nowhere")
    fill(tmp_path / "triton" / "KEY" / "kernel.c", 5, 1)
    assert sorted(item.size for item in cache_items(tmp_path)) == [3, 5]


def test_no_other_folder_is_pruned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FUZZ_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "1")
    kept = fill(cache_folder() / "triton" / "KEY" / "kernel.c", 3_000_000, 9)
    prune_cache()
    assert kept.exists() and tmp_path in kept.parents


def test_a_bound_that_is_no_number_is_refused_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "list"], env={**os.environ, "FUZZ_CACHE": "/dev/null", "FUZZ_CACHE_MB": "nan"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "fuzz: FUZZ_CACHE_MB=nan: give a whole number of megabytes, such as 2048\n"


def test_a_bound_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUZZ_CACHE", str(tmp_path))
    monkeypatch.setenv("FUZZ_CACHE_MB", "2 GB")
    with pytest.raises(UsageError, match="FUZZ_CACHE_MB=2 GB: give a whole number of megabytes, such as 2048"):
        use_cache_folder()
