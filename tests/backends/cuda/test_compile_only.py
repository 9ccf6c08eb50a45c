"""What a launcher would launch on a GPU is compiled into Triton's cache on disk, without a GPU."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from weakref import WeakKeyDictionary

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.runtime.driver import driver as drivers
from triton.runtime.errors import PTXASError

from fuzz import size, target, tensor
from fuzz.backends.cpu.compilers.compiler import build
from fuzz.backends.cuda import compile_only, launch_loop
from fuzz.backends.cuda.backend import CudaBackend
from fuzz.backends.cuda.launch_recorder import record_launches
from fuzz.backends.execute import run
from fuzz.backends.triton_host import autotune
from fuzz.backends.triton_host import compile_only as only_compiling
from fuzz.backends.triton_host.knobs import knobs
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.outcome import Returned
from fuzz.model.recipes import recipe
from fuzz.oracles import examine
from fuzz.target.spec import Target
from fuzz.worker.profile import PROFILE
from fuzz.worker.protocol import Precompile, WorkerConfig

H100 = {
    "multiprocessor_count": 132, "max_shared_mem": 232448, "max_num_regs": 65536, "warpSize": 32, "sm_clock_rate": 198,
    "mem_clock_rate": 261, "mem_bus_width": 5120, "major": 9, "minor": 0, "total_memory": 80 << 30,
}  # fmt: skip
N = size("N", 1, 64)


@triton.jit
def doubled_kernel(y, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)


@target(x=tensor(N), batch=N, reference=lambda x: {"y": x * 2})
def doubled(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    assert x.is_cuda and torch.cuda.get_device_properties(x.device).multi_processor_count == 132
    y = torch.empty_like(x)
    doubled_kernel[(triton.cdiv(len(x), 64),)](y, x, len(x), BLOCK=64)
    return {"y": y}


@target(x=tensor(N), reference=lambda x: {"y": x * 2})
def doubled_by_a_grid_of_tensors(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    doubled_kernel[(torch.ones((), dtype=torch.int64),)](y, x, len(x), BLOCK=64)
    return {"y": y}


@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@triton.jit
def tuned_kernel(y, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 3, at < n)


@target(x=tensor(N), reference=lambda x: {"y": x * 3})
def tuned(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](y, x, len(x))
    return {"y": y}


@triton.jit
def wrong_kernel(y, x):  # type: ignore[no-untyped-def]
    tl.static_assert(False, "never")


@target(x=tensor(N), reference=lambda x: {"y": x})
def wrong(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    wrong_kernel[(1,)](y, x)
    return {"y": y}


def plan(length: int, layout: Layout = CONTIGUOUS, split: Split | None = None, dtype: str = "float32") -> Case:
    x = Argument(("N",), dtype, recipe("normal", 7), layout)
    return Case("doubled", (Call({"N": length}, {"x": x}),), split)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_case_is_compiled_for_the_gpu_with_the_specialisation_that_it_asks_for_there(cache: Path) -> None:
    with compile_only.compile_only(H100):
        for case, aligned in ((plan(48), {"y", "x", "n"}), (plan(47, Layout(offset=1)), {"y"})):
            before = set(cache.rglob("*.ttir"))
            outcome = run(doubled, doubled.launcher, case.calls, compile_only.CompileOnlyBackend())
            assert isinstance(outcome, Returned) and outcome.calls[0].unwritten
            (path,) = set(cache.rglob("*.ttir")) - before
            head = next(line for line in path.read_text().splitlines() if "tt.func" in line).split("%")[1:]
            assert {one.split(":")[0] for one in head if "tt.divisibility = 16" in one} == aligned
            assert json.loads(path.with_suffix(".json").read_text())["target"]["arch"] == 90
            assert path.with_suffix(".cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("made", [doubled, doubled_by_a_grid_of_tensors])
def test_what_triton_launches_can_be_repeated_without_its_launcher(cache: Path, made: Target) -> None:
    with compile_only.compile_only(H100), record_launches() as recorded:
        run(made, made.launcher, plan(48, dtype="float16").calls, compile_only.CompileOnlyBackend())
        (launch,) = recorded
        assert launch.loop is not None and launch.pointers is not None
        config = launch.loop.config
        assert (config.grid, config.threads, config.stream) == ((1, 1, 1), 128, 0)
        assert {type(size) for size in config.grid} == {int}
        addresses = [argument.data_ptr() for argument in launch.arguments[:2]]
        assert launch.loop.slots.tolist() == [*addresses, 48, 0, 0]
        assert [pointer.slot for pointer in launch.pointers] == [0, 1]


@pytest.mark.parametrize("current", [0, 7])
def test_a_launch_on_a_stream_of_the_launchers_own_is_not_repeated(
    cache: Path, monkeypatch: pytest.MonkeyPatch, current: int
) -> None:
    """Only the launcher knows that the stream waits for what fills its memory. Compiled alone, it launches on 0."""
    with compile_only.compile_only(H100):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=current))
        with CudaBackend().session(None) as session:
            run(doubled, doubled.launcher, plan(48).calls, compile_only.CompileOnlyBackend())
        (launch,) = session.launches
        assert (launch.pointers is not None) == (current == 0)


def test_one_configuration_is_compiled_and_no_times_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_kernel, "cache_results", True)
    with compile_only.compile_only(H100):
        assert isinstance(run(tuned, tuned.launcher, plan(20).calls, compile_only.CompileOnlyBackend()), Returned)
    assert len(list(cache.rglob("*.cubin"))) == 1 and not list(cache.rglob("*.autotune.json"))


def test_nothing_is_left_of_it() -> None:
    before = drivers._active, vars(knobs).copy(), torch.cuda._lazy_init
    with compile_only.compile_only(H100):
        assert drivers.active.get_current_target().arch == 90
        with pytest.raises(RuntimeError, match="only compiles"):
            torch.cuda._lazy_init()
    assert (drivers._active, vars(knobs), torch.cuda._lazy_init) == before


def test_the_precompiler_compiles_the_calls_of_the_oracles_and_keeps_failures_to_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polite: list[int] = []
    monkeypatch.setattr(os, "nice", polite.append)
    with compile_only.compile_only(H100):
        monkeypatch.setattr(compile_only.CompileOnlyBackend, "prepare", lambda self, counters=False: None)
        monkeypatch.setattr(examine, "load_launcher", lambda config: (doubled, doubled.launcher))
        handle = examine.make_compile_handler(WorkerConfig("doubled", None, "cuda"))
        assert handle(Precompile(plan(33, Layout(offset=1), Split(3, 1), "bfloat16"))) == ""
        heads = [line for path in cache.rglob("*.ttir") for line in path.read_text().splitlines() if "tt.func" in line]
        # As drawn; contiguous; one row alone, whose number is a constant.
        assert sorted(head.count("%") for head in heads) == [2, 3, 3] and polite == [examine.POLITE]
        monkeypatch.setattr(examine, "load_launcher", lambda config: (wrong, wrong.launcher))
        assert "never" in examine.make_compile_handler(WorkerConfig("wrong", None, "cuda"))(Precompile(plan(33)))


@target(x=tensor(N), reference=lambda x: {"y": x * 2})
def wrong_afterwards(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    doubled_kernel[(triton.cdiv(len(x), 64),)](y, x, len(x), BLOCK=64)
    tuned_kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](y, x, len(x))
    wrong_kernel[(1,)](y, x)
    return {"y": y}


@target(x=tensor(N), reference=lambda x: {"y": x * 2})
def counts_registers(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    kernel = doubled_kernel[(triton.cdiv(len(x), 64),)](y, x, len(x), BLOCK=64)
    assert kernel.n_regs is not None
    return {"y": y}


@triton.autotune([triton.Config({"SIZE": size}) for size in (64, 16)], key=["n"])
@triton.jit
def product_kernel(y, x, n, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    block = tl.load(x + rows * SIZE + columns, rows * SIZE + columns < n)
    product = tl.dot(block, tl.trans(block))
    tl.store(y + rows * SIZE + columns, product, rows * SIZE + columns < n)


@target(x=tensor(N), reference=lambda x: {"y": x})
def tuned_product(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    product_kernel[(1,)](y, x, len(x))
    return {"y": y}


@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=[])
@triton.jit
def tuned_wrong_kernel(y, x, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.static_assert(BLOCK < 0, "never")


@target(x=tensor(N), reference=lambda x: {"y": x})
def tuned_wrongly(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
    y = torch.empty_like(x)
    tuned_wrong_kernel[(1,)](y, x)
    return {"y": y}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[Target, bool], str]:
    """What the precompiler's process says of a plan of a target whose kernels it has not seen."""
    monkeypatch.setattr(os, "nice", lambda _: None)
    monkeypatch.setattr(compile_only.CompileOnlyBackend, "prepare", lambda self, counters=False: None)

    def ask(made: Target, check_first: bool) -> str:
        monkeypatch.setattr(examine, "load_launcher", lambda config: (made, made.launcher))
        for kernel in (doubled_kernel, wrong_kernel, tuned_kernel.fn, product_kernel.fn, tuned_wrong_kernel.fn):
            kernel.device_caches.clear()
        return examine.make_compile_handler(WorkerConfig("t", None, "cuda"))(Precompile(plan(33), check_first))

    return ask


@pytest.mark.parametrize("check_first", [False, True])
def test_the_front_end_says_what_does_not_compile_before_anything_is_compiled(
    cache: Path, ask: Callable[[Target, bool], str], check_first: bool
) -> None:
    with compile_only.compile_only(H100):
        assert "never" in ask(wrong_afterwards, check_first)
        assert any(cache.rglob("*.cubin")) is not check_first
        assert ask(doubled, check_first) == "" and any(cache.rglob("*.cubin"))
        # The front end returns no kernel, which is no reason: the compilation itself may well succeed.
        assert ask(counts_registers, check_first) == ""


def test_what_the_front_end_alone_sees_chooses_no_configuration(
    cache: Path, ask: Callable[[Target, bool], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not see that one needs more shared memory than there is."""
    # Triton asks the driver for it once in a process.
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 1 << 13)
    with compile_only.compile_only(H100):
        assert ask(tuned_product, True) == ""
    (compiled,) = cache.rglob("product_kernel.json")
    assert json.loads(compiled.read_text())["shared"] <= 1 << 13


def test_a_configuration_that_needs_too_much_shared_memory_is_not_assembled_and_not_compiled_again(
    cache: Path, ask: Callable[[Target, bool], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 1 << 13)
    # Compilations that end are counted by Triton's listener, once another test has installed it.
    monkeypatch.setattr(triton.knobs.compilation, "listener", None)
    counted = Mock()
    monkeypatch.setattr(PROFILE, "move", counted)
    begun, assembled = Mock(wraps=ASTSource.make_ir), Mock(wraps=CUDABackend.make_ptx)
    monkeypatch.setattr(ASTSource, "make_ir", lambda *given: begun(*given))
    monkeypatch.setattr(CUDABackend, "make_ptx", lambda *given: assembled(*given))
    with compile_only.compile_only(H100):
        for _ in range(2):  # Another process chooses anew.
            monkeypatch.setattr(autotune, "CACHES", WeakKeyDictionary())
            monkeypatch.setattr(autotune, "HAS_CHOSEN", WeakKeyDictionary())
            assert ask(tuned_product, False) == ""
            assert (begun.call_count, assembled.call_count) == (2, 1)
    assert [one.args[0] for one in counted.call_args_list] == ["compile"] and 0 < counted.call_args.args[1] < 1000
    (needed,) = cache.rglob("shared_memory.txt")
    assert int(needed.read_text()) > 1 << 13 and not list(needed.parent.glob("*.ptx"))
    # On a GPU that has more of it the configuration is compiled.
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 1 << 20)
    monkeypatch.setattr(autotune, "CACHES", WeakKeyDictionary())
    with compile_only.compile_only(H100):
        assert ask(tuned_product, False) == "" and assembled.call_count == 2


@pytest.mark.parametrize("check_first", [False, True])
def test_what_no_configuration_compiles_is_refused(
    cache: Path, ask: Callable[[Target, bool], str], check_first: bool
) -> None:
    """An autotuner takes an assertion of one for a configuration that cannot be, and launches the first in the end."""
    with compile_only.compile_only(H100):
        assert "never" in ask(tuned_wrongly, check_first)


def test_a_killed_assembler_says_nothing_of_a_plan(
    cache: Path, ask: Callable[[Target, bool], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CUDABackend, "make_cubin", Mock(side_effect=PTXASError("`ptxas` failed with error code -9")))
    with compile_only.compile_only(H100):
        assert ask(doubled, True) == ask(doubled, False) == ""


def test_the_front_end_sees_a_kernel_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, backend = Mock(wraps=only_compiling.run_front_end), compile_only.CompileOnlyBackend()
    monkeypatch.setattr(only_compiling, "run_front_end", seen)
    doubled_kernel.device_caches.clear()
    with compile_only.compile_only(H100):
        for block in range(2):
            with backend.front_end_only():
                run(doubled, doubled.launcher, plan(48).calls * 3, backend)
            assert seen.call_count == block + 1 and not any(cache.rglob("*.cubin"))


FAKE = """
#include <stddef.h>
#define SEEN __attribute__((visibility("default")))
SEEN int none;
SEEN int cuInit(unsigned flags) { return none ? 100 : 0; }
SEEN int cuDeviceGet(int *device, int number) { *device = 3; return 0; }
SEEN int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 100 * attribute + device; return 0; }
SEEN int cuDeviceTotalMem_v2(size_t *total, int device) { *total = (size_t)80 << 30; return 0; }
"""


def test_the_driver_describes_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libcuda.so"
    path.write_bytes(build(FAKE, "fake"))
    monkeypatch.setattr(launch_loop, "LIBRARY", str(path))
    launch_loop.driver.cache_clear()
    try:
        properties = compile_only.read_properties()
        assert (
            properties.keys() == H100.keys() and properties["major"] == 7503 and properties["total_memory"] == 80 << 30
        )
        ctypes.c_int.in_dll(launch_loop.driver(), "none").value = 1
        with pytest.raises(RuntimeError, match="no GPU"):
            compile_only.read_properties()
    finally:
        launch_loop.driver.cache_clear()
