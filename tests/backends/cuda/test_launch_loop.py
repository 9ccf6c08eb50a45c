"""Launches repeated in C make the calls to CUDA's driver that Triton's launcher makes; a fake driver records them."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fuzz.backends.cpu.compilers.compiler import build
from fuzz.backends.cuda import launch_loop as module
from fuzz.backends.cuda.launch_loop import LaunchLoop, make_loop
from fuzz.backends.cuda.launch_recorder import CudaLaunch

FAKE = """
#include <string.h>
#define SEEN __attribute__((visibility("default")))
SEEN long long record[64][32], notes[64][4]; SEEN int calls, arguments, failing = -1, noted_calls; long long objects;
SEEN int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **parameters, void **extra) {
    if (calls == failing) return 700;
    long long head[] = {(long long)f, gx, gy, gz, bx, by, bz, shared, (long long)stream, !!extra};
    long long *row = record[calls++];
    memcpy(row, head, sizeof head);
    for (int n = 0; n < arguments; n++) memcpy(row + 10 + n, parameters[n], 8);
    return 0;
}
static int noted(const char *what, void *one, void *other) {
    long long *row = notes[noted_calls++];
    row[0] = what[0], row[1] = (long long)one, row[2] = (long long)other, row[3] = calls;
    return 0;
}
static int made(void **one) { return *one = (void *)++objects, 0; }
SEEN int cuStreamCreate(void **stream, unsigned flags) { return made(stream); }
SEEN int cuEventCreate(void **event, unsigned flags) { return made(event); }
SEEN int cuEventRecord(void *event, void *stream) { return noted("record", event, stream); }
SEEN int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return noted("wait", stream, event); }
SEEN int cuGetErrorString(int error, const char **text) {
    *text = error == 700 ? "an illegal memory access was encountered" : "?";
    return 0;
}
"""
METADATA = SimpleNamespace(
    num_warps=4, shared=512, num_ctas=1, cluster_dims=(1, 1, 1), launch_cooperative_grid=False, launch_pdl=False,
    global_scratch_size=0, profile_scratch_size=0, target=GPUTarget("cuda", 90, 32),
)  # fmt: skip
TYPES = ("*fp32", "i32", "constexpr", "fp32", "*bf16", "i64", "u1", "fp64", "*i8")
HEAD = (3, 2, 1, 77, 0xABC0, (4, 1, 512), None, None, None)


def kernel(types: Any = TYPES, **metadata: Any) -> Any:
    source = SimpleNamespace(signature={f"a{number}": kind for number, kind in enumerate(types)})
    return SimpleNamespace(src=source, metadata=SimpleNamespace(**(vars(METADATA) | metadata)))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    path = tmp_path / "libcuda.so"
    path.write_bytes(build(FAKE, "fake"))
    library = ctypes.CDLL(str(path))
    monkeypatch.setattr(module, "driver", lambda: library)
    for cached in (module.driver_function, module.create_streams):
        cached.cache_clear()
    yield library
    for cached in (module.driver_function, module.create_streams):
        cached.cache_clear()


def launches(fake: Any, arguments: int) -> list[list[int]]:
    count = ctypes.c_int.in_dll(fake, "calls").value
    rows = np.array((ctypes.c_int64 * (64 * 32)).in_dll(fake, "record")).reshape(64, 32)
    return [row[: 10 + arguments].tolist() for row in rows[:count]]


def test_each_replica_is_launched_with_its_addresses_and_everything_else_as_at_first(fake: Any) -> None:
    first, second = torch.arange(64.0), torch.zeros(8, dtype=torch.bfloat16)
    arguments = (first, -5, 128, 1e-5, second, 1 << 40, True, -0.1, None)
    launched = CudaLaunch(kernel(), lambda *_: pytest.fail("Triton's launcher"), HEAD, arguments)
    ctypes.c_int.in_dll(fake, "arguments").value = 10
    moved = {0: np.array([0, 256, 640]), 4: np.array([128, -64, 1 << 33])}
    launched.repeat(3, moved, None)
    single, double = struct.unpack("<I", struct.pack("<f", 1e-5))[0], struct.unpack("<q", struct.pack("<d", -0.1))[0]
    want = [
        [0xABC0, 3, 2, 1, 128, 1, 1, 512, 77, 0, first.data_ptr() + int(one), (1 << 32) - 5, single,
         second.data_ptr() + int(two), 1 << 40, 1, double, 0, 0, 0]
        for one, two in zip(moved[0], moved[4], strict=True)
    ]  # fmt: skip
    assert launches(fake, 10) == want


def test_many_launches_run_side_by_side_after_what_came_before_and_before_what_comes_after(fake: Any) -> None:
    made = make_loop(kernel(("*fp32",)), HEAD, (None,))
    assert made is not None
    made.repeat(module.FEWEST_FOR_STREAMS, {0: np.arange(module.FEWEST_FOR_STREAMS)})
    streams = [row[8] for row in launches(fake, 0)]
    sides = streams[: module.SIDE_STREAMS]
    assert streams == sides * (module.FEWEST_FOR_STREAMS // module.SIDE_STREAMS)
    assert len({*sides, made.config.stream}) == module.SIDE_STREAMS + 1
    rows = np.array((ctypes.c_int64 * (64 * 4)).in_dll(fake, "notes")).reshape(64, 4).tolist()
    (_, start, *_), *before = rows[: module.SIDE_STREAMS + 1]
    assert rows[0][:3] == [ord("r"), start, made.config.stream]
    assert before == [[ord("w"), side, start, 0] for side in sides]
    after = rows[module.SIDE_STREAMS + 1 : 3 * module.SIDE_STREAMS + 1]
    ends = [row[1] for row in after[::2]]
    assert after[::2] == [
        [ord("r"), end, side, module.FEWEST_FOR_STREAMS] for end, side in zip(ends, sides, strict=True)
    ]
    assert after[1::2] == [[ord("w"), made.config.stream, end, module.FEWEST_FOR_STREAMS] for end in ends]
    assert len({start, *ends}) == module.SIDE_STREAMS + 1


def test_an_error_of_the_driver_is_raised_in_tritons_words_and_ends_the_loop(fake: Any) -> None:
    made = make_loop(kernel(("*fp32",)), HEAD, (None,))
    ctypes.c_int.in_dll(fake, "failing").value = 2
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: an illegal memory access was encountered"):
        made.repeat(5, {0: np.arange(5)})  # type: ignore[union-attr]
    assert len(launches(fake, 0)) == 2


@pytest.mark.parametrize("grid", [(4, 0, 1), (-1, 1, 1), (2, -3, 4), (1 << 16, 1 << 16, 1), (1 << 16, 1 << 15, 1)])
def test_a_grid_whose_product_is_no_positive_int_launches_nothing(fake: Any, grid: tuple[int, int, int]) -> None:
    made = make_loop(kernel(("*fp32",)), HEAD, (None,))
    assert made is not None
    LaunchLoop(replace(made.config, grid=grid), made.slots, made.slot_of).repeat(2, {0: np.arange(2)})
    assert launches(fake, 0) == []


def test_a_grid_of_two_negative_sizes_is_the_drivers_to_refuse(fake: Any) -> None:
    made = make_loop(kernel(("*fp32",)), HEAD, (None,))
    assert made is not None
    LaunchLoop(replace(made.config, grid=(-1, -2, 1)), made.slots, made.slot_of).repeat(1, {0: np.arange(1)})
    assert len(launches(fake, 0)) == 1


@pytest.mark.parametrize(
    ("types", "metadata", "arguments", "head"),
    [
        (("*fp32",), {"num_ctas": 2}, (None,), HEAD),
        (("*fp32",), {"cluster_dims": (2, 1, 1)}, (None,), HEAD),
        (("*fp32",), {"launch_cooperative_grid": True}, (None,), HEAD),
        (("*fp32",), {"launch_pdl": True}, (None,), HEAD),
        (("*fp32",), {"global_scratch_size": 128}, (None,), HEAD),
        (("*fp32",), {"profile_scratch_size": 128}, (None,), HEAD),
        (("fp16",), {}, (1.0,), HEAD),
        (("tensordesc<fp16[16, 16]>",), {}, (None,), HEAD),
        ((("*fp32", "i32"),), {}, ((None, 1),), HEAD),
        (("*fp32", "i32"), {}, (None,), HEAD),
        (("*fp32",), {}, (None,), (*HEAD[:7], print, None)),
        (("*fp32",), {}, (None,), (*HEAD[:8], print)),
        (("*fp32",), {}, (None,), (*HEAD[:7], SimpleNamespace(calls=[print]), None)),
    ],
)
def test_what_needs_more_than_a_launch_is_left_to_tritons_launcher(
    types: Any, metadata: dict[str, Any], arguments: Any, head: Any
) -> None:
    assert make_loop(kernel(types, **metadata), head, arguments) is None
    calls: list[Any] = []
    launched = CudaLaunch(kernel(types, **metadata), lambda *arguments: calls.append(arguments), head, arguments)
    launched.repeat(2, {}, None)
    assert calls == [(*head, *arguments)] * 2


def test_the_slots_are_the_parameters_of_what_triton_compiles(fake: Any) -> None:
    @triton.jit
    def scaled(x, y, n, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, at < n) * factor, at < n)

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    made = triton.compile(ASTSource(scaled, signature, {(4,): 64}), target=GPUTarget("cuda", 90, 32))
    x, y = torch.zeros(64), torch.zeros(64)
    built = make_loop(made, HEAD, (x, y, 64, 2.0, 64))
    assert built is not None
    sizes = [int(bits) // 8 for bits in re.findall(r"\.param \.\w(\d+)", made.asm["ptx"])]
    assert sizes[:4] == [8, 8, 4, 4] and all(size == 8 for size in sizes[4:]) and len(sizes) <= len(built.slots)
    assert not built.slots[4:].any()
