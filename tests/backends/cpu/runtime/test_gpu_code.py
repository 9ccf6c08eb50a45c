"""Texts and limits of a GPU, by Triton's own compiler for it."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime import gpu_code


@triton.jit
def product(out, N: tl.constexpr):
    a = tl.full((N, N), 1.0, tl.float16)
    tl.store(out, tl.sum(tl.dot(a, a)))


@triton.jit
def add_one(x):
    tl.store(x, tl.load(x) + 1)


def test_texts_are_made_when_they_are_read():
    kernel = add_one[(1,)](torch.zeros(1))
    assert kernel.n_regs > 0
    assert "ptx" not in kernel.asm
    assert ".target sm_90" in kernel.asm["ptx"]
    assert "tt.func" in kernel.asm["ttgir"]
    with pytest.raises(KeyError):
        kernel.asm["amdgcn"]


def test_shared_memory_is_that_of_a_gpus_compiler():
    kernel = product.warmup(torch.float32, 16, grid=(1,))
    kernel._init_handles()
    assert kernel.metadata.shared > 0
    assert kernel.metadata.num_warps == 4
    add = add_one[(1,)](torch.zeros(1))
    assert add.metadata.shared == 0


def test_limits_of_a_gpu_are_those_of_its_compiler():
    out = torch.zeros(1)
    add_one[(1,)](out, num_warps=3)
    with cpu.knobs.set(gpu_limits=True):
        with pytest.raises(AssertionError, match="power of 2"):
            add_one[(1,)](out, num_warps=5)
        with pytest.raises(Exception, match="Input shapes should have"):
            product[(1,)](out, 4)
        add_one[(1,)](out, num_warps=2)
    product[(1,)](out, 2)
    assert out.item() == 8


def test_limits_of_a_gpu_hold_for_kernels_that_ran_before(monkeypatch):
    out, compiled = torch.zeros(1), []
    compile_for_gpu = gpu_code.compile_for_gpu
    monkeypatch.setattr(gpu_code, "compile_for_gpu", lambda kernel: compiled.append(1) or compile_for_gpu(kernel))
    product[(1,)](out, 32)
    with cpu.knobs.set(gpu_limits=True):
        for _ in range(2):
            product[(1,)](out, 32)
            with cpu.knobs.set(max_shared_mem=8), pytest.raises(OutOfResources, match="shared memory, Required"):
                product[(1,)](out, 32)
    with cpu.knobs.set(max_shared_mem=8):
        product[(1,)](out, 32)
    assert compiled == [1]


@triton.jit
def count(out):
    tl.atomic_add(out, 1)


def test_grids_that_a_gpu_refuses():
    out = torch.zeros(1, dtype=torch.int32)
    for grid in ((0,), (3, 0), (-1,), (2, -3)):  # Triton launches nothing
        count[grid](out)
    for grid in ((-2, -3), (-1, 1, -1), (1, -1, -1)):
        with pytest.raises(RuntimeError, match=r"invalid argument: grid \("):
            count[grid](out)
    assert out.item() == 0
    for grid in ((1, 65536), (1, 1, 65536)):
        count[grid](out)
    assert out.item() == 2 * 65536
    with cpu.knobs.set(gpu_limits=True):
        for grid in ((1, 65536), (1, 1, 65536), (2**31,)):
            with pytest.raises(RuntimeError, match="invalid argument"):
                count[grid](out)
        count[(2, 65535)](out)
        count[(0, 65536)](out)
    assert out.item() == 2 * 65536 + 2 * 65535
