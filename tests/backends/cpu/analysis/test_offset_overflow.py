"""Offsets whose 32-bit arithmetic wraps around: found and named to the line; hashes and masked lanes are silent."""

import ctypes

import pytest
import torch
import triton
import triton.language as tl
from source_lines import line_of

from fuzz.backends import cpu


@triton.jit(do_not_specialize=["stride", "row"])
def scalar_row(x, out, row, stride, n, wide: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    start = row.to(tl.int64) * stride if wide else row * stride
    tl.store(out + i, tl.load(x + start + i, mask=i < n))


def test_a_row_past_two_to_the_31():
    x, out = torch.zeros(8), torch.zeros(8)
    with cpu.observe(overflow=True) as log:
        scalar_row[(1,)](x, out, 2, 2**30, 3, wide=False, B=8)
    line, cause = line_of(scalar_row, "tl.load"), line_of(scalar_row, "start =")
    want = cpu.Violation(
        "scalar_row", __file__, line, "x", "load", (0, 0, 0), (0,), -(2**31), 4, "overflow", None, f"{__file__}:{cause}"
    )
    assert log.violations[0] == want and len(log.violations) == 3
    assert "int32 overflow" in str(want) and f"(computed at {__file__}:{cause})" in str(want)
    with cpu.observe(overflow=True) as log:
        scalar_row[(1,)](x, out, 2, 2**30, 3, wide=True, B=8)
        assert {v.problem for v in log.violations} == {"out-of-bounds"}
    with cpu.observe(overflow=True) as log:
        scalar_row[(1,)](x, out, 2, 2**30, 0, wide=False, B=8)
        scalar_row[(1,)](x, out, 0, 2**30, 8, wide=False, B=8)
    assert not log.violations


def test_an_argument_low_in_memory():
    """From there a wrapped offset leads to an address below 0."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    private_anonymous, read_write = 0x22, 3
    address = libc.mmap(ctypes.c_void_p(1 << 28), ctypes.c_size_t(4096), read_write, private_anonymous, -1, 0)
    assert 0 < address < 1 << 32
    x, out = torch.frombuffer((ctypes.c_float * 8).from_address(address), dtype=torch.float32), torch.zeros(8, 2)
    with cpu.observe(overflow=True, reports=1000) as log:
        rows_of_a_block[(1,)](x, out, 0, -(2**30), 9, M=8, N=2)
    found = sorted({v.lane[0] for v in log.violations if v.problem == "overflow"})
    assert found == [3, 4, 5, 6, 7]


@triton.jit(do_not_specialize=["stride", "base"])
def rows_of_a_block(x, out, base, stride, m, M: tl.constexpr, N: tl.constexpr):
    i = base + tl.arange(0, M)
    at = i[:, None] * stride + tl.arange(0, N)[None, :]
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tl.load(x + at, mask=(i < m)[:, None]))


@pytest.mark.parametrize(("base", "stride", "m", "rows"), [
    (0, 2**29, 9, [4, 5, 6, 7]), (0, 2**29, 6, [4, 5]), (0, 2**29, 4, []), (-8, 2**28, 9, []), (-9, 2**28, 9, [0]),
    (0, 2**30, 4, [2, 3]), (0, -(2**30), 9, [3, 4, 5, 6, 7]), (0, 2**31 // 7 + 1, 9, [7]), (0, 2**31 // 7, 9, []),
])  # fmt: skip
def test_some_rows_of_a_block(base, stride, m, rows):
    """Row 4 times 2**29 is 2**31, the first that int32 does not hold; -2**31 is held. Rows 4 and 8 of 2**30 come back
    to the start, inside the argument, and are wrong all the same."""
    x, out = torch.zeros(8), torch.zeros(8, 2)
    with cpu.observe(overflow=True, reports=1000) as log:
        rows_of_a_block[(1,)](x, out, base, stride, m, M=8, N=2)
    found = sorted({v.lane[0] for v in log.violations if v.problem == "overflow"})
    assert found == rows
    assert {v.line for v in log.violations} <= {line_of(rows_of_a_block, "tl.load")}


@triton.jit(do_not_specialize=["step"])
def walking(x, out, step, n, B: tl.constexpr):
    i = tl.arange(0, B)
    pointers = x + i * step
    total = tl.zeros((B,), tl.float32)
    for _ in range(n):
        total += tl.load(pointers, mask=i < 2)
        pointers += 1
    tl.store(out + i, total)


def test_a_pointer_that_a_loop_carries():
    x, out = torch.zeros(40), torch.zeros(4)
    with cpu.observe(overflow=True) as log:
        walking[(1,)](x, out, 2**30, 2, B=4)
    assert {v.problem for v in log.violations} == {"out-of-bounds"}
    with cpu.observe(overflow=True) as log:
        walking[(1,)](x, out, 2**31 - 1, 2, B=4)
    assert {v.problem for v in log.violations} == {"out-of-bounds"}
    with cpu.observe(overflow=True) as log:
        walking[(1,)](x, out, 12, 2, B=4)
    assert not log.violations


@triton.jit
def hashed(x, out, seed, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    bits = (i * 1664525 + 1013904223) ^ (seed * 22695477)
    at = (bits * 1103515245 + 12345) & 15
    noise = tl.rand(seed, i * 2654435)
    tl.store(out + i, tl.load(x + at) + 0 * noise, mask=i < n)


@triton.jit
def gathered(x, index, out, width, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + tl.load(index + i) * width))


def test_hashes_are_silent_and_loaded_indexes_are_not():
    with cpu.observe(overflow=True) as log:
        hashed[(4,)](torch.zeros(16), torch.zeros(30), 12345, 30, B=8)
        gathered[(1,)](torch.zeros(30), torch.tensor([0, 9, 3, 1], dtype=torch.int32), torch.zeros(4), 3, B=4)
        assert not log.violations
        index = torch.tensor([0, 2**30, 3, 1], dtype=torch.int32)
        gathered[(1,)](torch.zeros(30), index, torch.zeros(4), 4, B=4)
    seen = [(v.problem, v.lane, v.offset, v.line) for v in log.violations]
    assert seen == [("overflow", (1,), 0, line_of(gathered, "tl.load"))]


@triton.jit(do_not_specialize=["stride"])
def used_by_loops(x, out, stride, m, n, modulo: tl.constexpr, moving: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    start = (tl.program_id(0) + 65536) * stride
    column = i % m if modulo else i
    source, target = x + (start + column), out + (start + column)
    for _ in range(n):
        tl.store(target, tl.load(source) + 1)
        if moving:
            source += 1


@pytest.mark.parametrize("modulo", [False, True], ids=["affine", "inexact"])
@pytest.mark.parametrize("moving", [False, True], ids=["fixed", "moving"])
def test_a_scalar_that_wrapped_around_before_the_loop_that_uses_the_pointers(modulo, moving):
    """65536 * 65536 comes back to 0: what is touched lies inside of the arguments."""
    x, out = torch.zeros(32), torch.zeros(32)
    with cpu.observe(overflow=True, reports=1000) as log:
        used_by_loops[(2,)](x, out, 65536, 7, 2, modulo=modulo, moving=moving, B=16)
    found = {(v.program[0], v.kind, v.lane[0]) for v in log.violations if v.problem == "overflow"}
    assert {(0, kind, lane) for kind in ("load", "store") for lane in range(16)} <= found
    with cpu.observe(overflow=True) as log:
        used_by_loops[(1,)](x, out, 0, 7, 2, modulo=modulo, moving=moving, B=16)
    assert not log.violations


@triton.jit(do_not_specialize=["stride"])
def repeated_rows(x, out, stride, m, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0) * stride + tl.arange(0, M)[:, None] % m
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.load(x + row + tl.arange(0, N)[None, :] * 0))


def test_a_scalar_that_wrapped_around_in_rows_that_all_columns_share():
    x, out = torch.zeros(64), torch.zeros(16, 8)
    with cpu.observe(overflow=True, reports=1000) as log:
        repeated_rows[(5,)](x, out, 2**30, 7, M=16, N=8)
    found = {(v.problem, v.program[0]) for v in log.violations}
    assert found == {("out-of-bounds", 1), ("overflow", 2), ("overflow", 3), ("overflow", 4)}


@triton.jit(do_not_specialize=["stride"])
def twice_wrapped(x, out, stride, whole: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    start = (tl.program_id(0) + 65536) * stride
    if whole:
        tl.store(out + i, tl.load(x + start + start + i))
    else:
        tl.store(out + i, tl.load(x + (start + i) + (start + i)))


@pytest.mark.parametrize("whole", [True, False], ids=["scalar", "tensor"])
def test_two_offsets_of_one_pointer_that_wrapped_around(whole):
    with cpu.observe(overflow=True) as log:
        twice_wrapped[(1,)](torch.zeros(16), torch.zeros(4), 65536, whole=whole, B=4)
    found = [(v.problem, v.lane, v.offset) for v in log.violations]
    assert found == [("overflow", (lane,), lane if whole else 2 * lane) for lane in range(4)]
