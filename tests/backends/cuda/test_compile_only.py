"""What a launcher would launch on a GPU is compiled into Triton's cache on disk, without a GPU."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver as drivers

from fuzz import size, target, tensor
from fuzz.backends.cpu.compilers.compiler import build
from fuzz.backends.cuda import compile_only, launch_loop
from fuzz.backends.cuda.backend import CudaBackend
from fuzz.backends.cuda.launch_recorder import record_launches
from fuzz.backends.execute import run
from fuzz.backends.triton_host.knobs import knobs
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.outcome import Returned
from fuzz.model.recipes import recipe
from fuzz.oracles import examine
from fuzz.target.spec import Target
from fuzz.worker.protocol import WorkerConfig

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
        assert handle(plan(33, Layout(offset=1), Split(3, 1), "bfloat16"))
        heads = [line for path in cache.rglob("*.ttir") for line in path.read_text().splitlines() if "tt.func" in line]
        # As drawn; contiguous; one row alone, whose number is a constant.
        assert sorted(head.count("%") for head in heads) == [2, 3, 3] and polite == [examine.POLITE]
        monkeypatch.setattr(examine, "load_launcher", lambda config: (wrong, wrong.launcher))
        assert not examine.make_compile_handler(WorkerConfig("wrong", None, "cuda"))(plan(33))


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
