"""Loops with carried values, while, branches, early return, and whole-tensor semantics inside of them."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def carried(out, n, step, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    first, second = 0, 1
    for k in range(0, n, step):
        total += k * i
        first, second = second, first + second
    tl.store(out + i, total)
    tl.store(out + B, first)
    tl.store(out + B + 1, second)


@pytest.mark.parametrize(("n", "step"), [(0, 1), (1, 2), (7, 2), (10, 3)])
def test_carried_values_change_at_the_same_time(n, step):
    out = torch.empty(18)
    carried[(1,)](out, n, step, B=16)
    a, b, total = 0, 1, 0
    for k in range(0, n, step):
        a, b, total = b, a + b, total + k
    assert out[:16].tolist() == [float(total * i) for i in range(16)]
    assert out[16:].tolist() == [a, b]


@triton.jit
def swapped(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    a = tl.load(x + at)
    b = a * 2
    for _ in range(n):
        a, b = tl.trans(b), tl.trans(a)
    tl.store(out + at, a)
    tl.store(out + B * B + at, b)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_carried_tensors_that_swap_and_transpose(n):
    x, out = torch.randn(8, 8), torch.empty(2, 8, 8)
    swapped[(1,)](x, out, n, B=8)
    a, b = x, 2 * x
    for _ in range(n):
        a, b = b.T, a.T
    assert torch.equal(out[0], a) and torch.equal(out[1], b)


@triton.jit
def collatz(x, out, n):
    p = tl.program_id(0)
    if p >= n:
        return
    value = tl.load(x + p)
    steps = 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out + p, steps)


def test_while_branch_and_early_return():
    x = torch.arange(1, 33, dtype=torch.int64)
    out = torch.full((40,), -1, dtype=torch.int32)
    collatz[(40,)](x, out, 32)

    def steps(value):
        return 0 if value == 1 else 1 + steps(value // 2 if value % 2 == 0 else 3 * value + 1)

    assert out.tolist() == [steps(v) for v in range(1, 33)] + [-1] * 8


@triton.jit
def chosen(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    if n > 2:
        b = a + 1
        c = tl.sum(b)
    elif n == 2:
        b = -a
        c = 2.0
    else:
        b = a
        c = tl.max(a, 0)
    tl.store(out + i, b)
    tl.store(out + B, c)


@pytest.mark.parametrize("n", [0, 2, 3])
def test_branches_yield_tensors_and_scalars(n):
    x, out = torch.arange(8.0), torch.empty(9)
    chosen[(1,)](x, out, n, B=8)
    b = {0: x, 2: -x, 3: x + 1}[n]
    assert out[:8].tolist() == b.tolist()
    assert out[8] == {0: 7.0, 2: 2.0, 3: 36.0}[n]


@triton.jit
def nested(x, out, rows, columns, B: tl.constexpr):
    i = tl.arange(0, B)
    best = tl.full((B,), float("-inf"), tl.float32)
    for r in range(rows):
        line = tl.zeros((B,), tl.float32)
        for c in range(columns):
            value = tl.load(x + (r * columns + c) * B + i)
            if c % 2 == 0:
                line += value
            else:
                line -= value
        best = tl.maximum(best, line)
    tl.store(out + i, best)


def test_nested_loops():
    x, out = torch.randint(-9, 9, (3, 5, 16)).float(), torch.empty(16)
    nested[(1,)](x, out, 3, 5, B=16)
    signs = torch.tensor([1.0, -1, 1, -1, 1])[None, :, None]
    assert torch.equal(out, (x * signs).sum(1).amax(0))


@triton.jit
def shifted_in_place(x, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(x + i + 1, a)
    b = tl.load(x + i)
    tl.store(x + i + 1, b)


def test_a_load_sees_no_store_that_comes_after_it():
    x = torch.arange(9.0)
    shifted_in_place[(1,)](x, B=8)
    assert x.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6]


@triton.jit
def grid(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    at = (z * ny + y) * nx + x
    tl.store(out + at, x * 10000 + y * 100 + z + (nx * ny * nz) * 1000000)


def test_grid():
    out = torch.full((24,), -1, dtype=torch.int32)
    grid[(2, 3, 4)](out)
    assert out.tolist() == [x * 10000 + y * 100 + z + 24000000 for z in range(4) for y in range(3) for x in range(2)]
    grid[lambda meta: (0,)](out)


@triton.jit
def float_loop(out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = i.to(tl.bfloat16)
    k = 0
    while k < n and tl.sum(a.to(tl.float32)) < 100.0:
        a = a * 1.1
        k += 1
    tl.store(out + i, a)
    tl.store(out + B, k.to(tl.bfloat16))


def test_while_over_tensors():
    out = torch.empty(9, dtype=torch.bfloat16)
    float_loop[(1,)](out, 1000, B=8)
    a, k = torch.arange(8).bfloat16(), 0
    while a.float().sum() < 100:
        a = (a.float() * torch.tensor(1.1).bfloat16().float()).bfloat16()
        k += 1
    assert out.tolist() == [*a.tolist(), k]


@triton.jit
def many_returns(x, out):
    value = tl.load(x + tl.program_id(0))
    if value < 0:
        tl.store(out + tl.program_id(0), 1)
        return
    if value > 10:
        tl.store(out + tl.program_id(0), 2)
        return
    tl.store(out + tl.program_id(0), 3)


def test_several_early_returns():
    x, out = torch.tensor([-5, 20, 5], dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    many_returns[(3,)](x, out)
    assert out.tolist() == [1, 2, 3]


@triton.jit
def sum_below(out, n):
    total = 0
    for i in tl.range(0, n, disable_licm=True):
        total += i
    tl.store(out, total)


def test_hints_for_loops_change_nothing():
    out = torch.zeros(1, dtype=torch.int32)
    sum_below[(1,)](out, 5)
    assert out.item() == 10
