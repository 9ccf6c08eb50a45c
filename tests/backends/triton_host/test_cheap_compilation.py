"""Triton's compilation with one context for many kernels, and files without a folder for each."""

import os
import threading
from pathlib import Path

import pytest
from triton.runtime.cache import FileCacheManager

from fuzz.backends.triton_host import cheap_compilation
from fuzz.backends.triton_host.cheap_compilation import MOST_KERNELS, SharedContext, put


def test_a_context_is_for_one_thread_and_so_many_kernels() -> None:
    shared = SharedContext()
    first = shared.take()
    assert all(shared.take() is first for _ in range(MOST_KERNELS - 1))
    second = shared.take()
    assert second is not first
    others: list[object] = []
    thread = threading.Thread(target=lambda: others.append(shared.take()))
    thread.start()
    thread.join()
    assert others[0] is not second and shared.take() is second


def test_a_forked_process_takes_its_own_context_and_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedContext()
    first = shared.take()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert shared.take() is not first and shared.inherited[-1] is first


@pytest.mark.parametrize("data", ["text\nlines", b"\0bytes", 17])
def test_files_of_the_cache_are_the_same_as_by_triton(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: object
) -> None:
    contents = []
    for write in (put, cheap_compilation.put_through_folder):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / write.__qualname__))
        path = Path(write(FileCacheManager("key"), data, "kernel.ttir"))
        assert [file.name for file in path.parent.iterdir()] == ["kernel.ttir"]
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
