"""Triton's compilation with one context for many kernels, and files without a folder for each."""

import importlib.util
import inspect
import os
import threading
from pathlib import Path
from types import ModuleType

import pytest
from triton.runtime.cache import FileCacheManager

from fuzz.backends.triton_host import cheap_compilation
from fuzz.backends.triton_host.cheap_compilation import MOST_KERNELS, Inspect, SharedContext, put


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


def module_of(path: Path, text: str) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("functions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def test_the_lines_of_a_function_are_searched_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = module_of(tmp_path / "functions.py", "def make():\n    def f():\n        return 1\n    return f\n")
    expected = inspect.getsourcelines(module.make())
    searched: list[object] = []
    getblock = inspect.getblock
    monkeypatch.setattr(inspect, "getblock", lambda lines: searched.append(lines) or getblock(lines))
    cheap = Inspect()
    for _ in range(3):
        lines, first = cheap.getsourcelines(module.make())
        assert (lines, first) == expected
        lines.clear()
    assert len(searched) == 1 and cheap.signature is inspect.signature


def test_a_file_that_has_changed_gives_its_new_lines(tmp_path: Path) -> None:
    cheap, path = Inspect(), tmp_path / "functions.py"
    for body in ("return 1", "x = 1\n    return x", "return 1 + 1"):
        module = module_of(path, f"def f():\n    {body}\n")
        os.utime(path, ns=(0, len(body)))
        assert cheap.getsourcelines(module.f) == ([f"{line}\n" for line in f"def f():\n    {body}".split("\n")], 1)
