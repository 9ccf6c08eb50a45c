"""Triton's compilation with one context for many kernels, and files without a folder for each."""

import ast
import importlib.util
import inspect
import os
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import jit
from triton.runtime.cache import FileCacheManager

from fuzz.backends import cpu
from fuzz.backends.triton_host import cheap_compilation
from fuzz.backends.triton_host.cheap_compilation import MOST_KERNELS, Inspect, SharedContext, get_group, parsed, put

FACTOR = tl.constexpr(3)


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


def test_the_files_of_a_kernel_are_found_as_by_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    find_by_triton, manager = FileCacheManager.get_group, FileCacheManager("key")
    written = {name: manager.put("{}", name) for name in ("kernel.ttir", "kernel.c", "kernel.json")}
    assert get_group(manager, "kernel.json") is find_by_triton(manager, "kernel.json") is None
    manager.put_group("kernel.json", written)
    manager.put("{}", "kernel2.c")
    assert get_group(manager, "kernel.json") == find_by_triton(manager, "kernel.json") == written
    Path(written["kernel.json"]).unlink()
    assert get_group(manager, "kernel.json") == find_by_triton(manager, "kernel.json") != written
    assert get_group(FileCacheManager("another"), "kernel.json") is None


def test_a_folder_that_was_removed_while_its_kernel_compiled_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    manager = FileCacheManager("key")
    (tmp_path / "key").rmdir()
    assert Path(put(manager, "{}", "kernel.json")).read_text() == "{}"


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
    findsource = inspect.findsource
    monkeypatch.setattr(inspect, "findsource", lambda asked: searched.append(asked) or findsource(asked))
    cheap = Inspect()
    for _ in range(3):
        lines, first = cheap.getsourcelines(module.make())
        assert (lines, first) == expected
        lines.clear()
    assert len(searched) == 1 and cheap.getfile is inspect.getfile


def test_a_file_that_has_changed_gives_its_new_lines(tmp_path: Path) -> None:
    cheap, path = Inspect(), tmp_path / "functions.py"
    for body in ("return 1", "x = 1\n    return x", "return 1 + 1"):
        module = module_of(path, f"def f():\n    {body}\n")
        os.utime(path, ns=(0, len(body)))
        assert cheap.getsourcelines(module.f) == ([f"{line}\n" for line in f"def f():\n    {body}".split("\n")], 1)


def test_the_code_of_a_function_keeps_the_lines_that_it_was_made_of(tmp_path: Path) -> None:
    cheap, path = Inspect(), tmp_path / "functions.py"
    first, second = (module_of(path, f"def f(x{kind}):\n    return x\n").f for kind in ("", ": int"))
    assert first.__code__ == second.__code__
    assert cheap.getsourcelines(second)[0][0] == "def f(x: int):\n"
    path.write_text("def f(x: float):\n    return x\n", encoding="utf-8")
    assert cheap.getsourcelines(second)[0][0] == "def f(x: int):\n"
    assert cheap.getsourcelines(first)[0][0] == "def f(x: float):\n"


def test_the_signature_of_a_function_is_made_once_for_equal_annotations() -> None:
    cheap = Inspect()

    def make(marked: object, at: object = None) -> list[object]:
        def plain(x: marked, y): ...  # type: ignore[valid-type]

        def with_default(x=at): ...

        return [plain, with_default]

    first, again, other = (make(marked, at) for marked, at in [(int, 1), (int, 2), ([], 1)])
    for function in (*first, *again, *other):
        assert cheap.signature(function) == inspect.signature(function)  # type: ignore[arg-type]
    assert cheap.signature(first[0]) is not cheap.signature(other[0])
    assert cheap.signature(other[0]) is cheap.signature(other[0])
    assert len(cheap.signatures) == 1


@triton.jit
def scaled(x, by: tl.constexpr = 2):
    return x * by * FACTOR


@triton.jit
def uses_much(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, count = tl.load(x + at, mask=at < n, other=0.0), 0
    for _ in range(2):
        total += scaled(total) if BLOCK > 1 else scaled(tl.abs(total), by=FACTOR)
        count += 1
    FACTOR_OF_ITS_OWN: tl.constexpr = FACTOR + 1
    tl.store(out + at, tl.math.exp(total) * FACTOR_OF_ITS_OWN + count, mask=at < n)


def hashed(function: object, finder: type) -> tuple[str, dict[tuple[str, int], object]]:
    """The hash that a search for dependencies ends with, and the global variables that it saw."""
    assert isinstance(function, triton.JITFunction)
    search = finder(name=function._fn_name, globals=function.__globals__, nonlocals={"n": 1}, src=function.src)
    search.visit(function.parse())
    return search.ret, search.used_global_vals


@pytest.mark.parametrize("function", [scaled, uses_much, tl.standard.softmax, tl.standard.sort, tl.random.philox_impl])
def test_a_function_has_the_hash_that_triton_gives_it(function: object) -> None:
    """Also the second time, and where what it uses has changed since."""
    for _ in range(2):
        with cpu.active():
            ours = hashed(function, cheap_compilation.DependenciesFinder)
        assert ours == hashed(function, jit.DependenciesFinder)


def test_a_function_made_again_has_another_hash_where_what_it_closes_over_has_changed() -> None:
    def make(factor: object) -> triton.JITFunction:
        @triton.jit
        def kernel(out):
            tl.store(out, factor)

        return kernel

    with cpu.active():
        two, again, three = (make(tl.constexpr(factor)).cache_key for factor in (2, 2, 3))
    assert two == again != three
    unpatched = make(tl.constexpr(3))
    assert unpatched.cache_key == three


def test_triton_changes_no_tree_that_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with cpu.active():
        uses_much.warmup(torch.float32, torch.float32, 8, BLOCK=16, grid=(1,))
    for function in (uses_much, scaled):
        assert ast.dump(parsed(function._src)) == ast.dump(ast.parse(function._src))
