"""Programs of one launch that write different values to one element, or read what another one writes."""

import pytest
import torch
import triton
import triton.language as tl
from source_lines import line_of

from fuzz.backends import cpu


@triton.jit
def tiles(x, out, n, step, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.program_id(0), mask=i < n)


def test_tiles_that_overlap():
    x, out = torch.zeros(20), torch.zeros(20)
    with cpu.observe(conflicts=True, reports=100) as log:
        tiles[(3,)](x, out, 20, 6, B=8)
    line = line_of(tiles, "tl.store")
    want = cpu.Violation("tiles", __file__, line, "out", "store", (1, 0, 0), (0,), 6, 4, "conflict", (0, 0, 0))
    assert log.violations[0] == want
    seen = [(v.program[0], v.other[0], v.offset) for v in log.violations]
    assert seen == [(1, 0, 6), (1, 0, 7), (2, 1, 12), (2, 1, 13)]
    for part in ("write conflict", "program (0, 0, 0)", f"{__file__}:{line}", "'out'", "element 6", "(1, 0, 0)"):
        assert part in str(want)
    with cpu.observe(conflicts=True) as log:
        tiles[(3,)](x, out, 20, 8, B=8)
    assert not log.violations


@triton.jit
def total_without_atomics(x, out, scale, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out, tl.load(out) + tl.sum(tl.load(x + i) * scale, 0))


def test_a_sum_that_forgets_to_be_atomic():
    with cpu.observe(conflicts=True) as log:
        total_without_atomics[(4,)](torch.ones(32), torch.zeros(1), 1.0, B=8)
    line = line_of(total_without_atomics, "tl.store")
    seen = [(v.program[0], v.other[0], v.line, v.lane) for v in log.violations]
    assert seen == [(k, k - 1, line, ()) for k in (1, 2, 3)]
    with cpu.observe(conflicts=True) as log:
        total_without_atomics[(4,)](torch.ones(32), torch.zeros(1), 0.0, B=8)
    assert not log.violations


@triton.jit
def row_stats(x, out, n, wrong: tl.constexpr, B: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    j = part * B + tl.arange(0, B)
    top = tl.max(tl.load(x + row * n + j), 0)
    place = row if wrong else row * tl.num_programs(1) + part
    tl.store(out + place, top)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int8])
def test_a_grid_dimension_that_the_output_forgets(dtype):
    x = torch.arange(64).reshape(2, 32).to(dtype)
    with cpu.observe(conflicts=True) as log:
        row_stats[(2, 2)](x, torch.zeros(4, dtype=dtype), 32, wrong=False, B=16)
        assert not log.violations
        row_stats[(2, 2)](x, torch.zeros(4, dtype=dtype), 32, wrong=True, B=16)
    line = line_of(row_stats, "tl.store")
    seen = [(v.program, v.other, v.line, v.offset) for v in log.violations]
    assert seen == [((0, 1, 0), (0, 0, 0), line, 0), ((1, 1, 0), (1, 0, 0), line, 1)]


@triton.jit
def same_flag(x, flag, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(flag, 1.0 + 0 * tl.sum(tl.load(x + i), 0))


def test_equal_values_are_no_conflict():
    with cpu.observe(conflicts=True, races=True) as log:
        same_flag[(4,)](torch.ones(32), torch.zeros(1), B=8)
    assert not log.violations


@triton.jit
def same_place(words, out):
    tl.store(out, tl.load(words + tl.program_id(0)).to(out.dtype.element_ty, bitcast=True) * 1.0)


@pytest.mark.parametrize(("dtype", "words"), [
    (torch.float16, torch.tensor([0x7E00, 0x7FFF, -512, 0x7E01], dtype=torch.int16)),
    (torch.bfloat16, torch.tensor([0x7FC0, 0x7FFF, -1, 0x7FC1], dtype=torch.int16)),
    (torch.float32, torch.tensor([0x7FC00000, 0x7FFFFFFF, -1, 0x7FC00001], dtype=torch.int32)),
])  # fmt: skip
def test_nans_of_other_bits_are_no_conflict(dtype, words):
    with cpu.observe(conflicts=True) as log:
        same_place[(4,)](words, torch.zeros(1, dtype=dtype))
        assert not log.violations
        same_place[(5,)](torch.cat([words, words[:1] * 0]), torch.zeros(1, dtype=dtype))
    assert [(v.program[0], v.problem) for v in log.violations] == [(4, "conflict")]


@triton.jit
def locked(x, out, lock, count, B: tl.constexpr, LOCK: tl.constexpr):
    """As in the backward pass of Triton's layer norm tutorial."""
    i = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * B + i)
    if LOCK:
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    first = tl.load(count)
    if first == 0:
        tl.store(count, 1)
    else:
        value += tl.load(out + i)
    tl.store(out + i, value)
    tl.debug_barrier()
    if LOCK:
        tl.atomic_xchg(lock, 0)


@triton.jit
def by_ticket(out, counter, B: tl.constexpr):
    at = tl.atomic_add(counter, 1)
    tl.store(out + at * B + tl.arange(0, B), tl.program_id(0) + 1)


@triton.jit
def last_one_adds(x, partial, out, counter, B: tl.constexpr):
    program = tl.program_id(0)
    tl.store(partial + program, tl.load(x + program))
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, B)), 0))


def test_programs_that_synchronise_are_in_order():
    x = torch.randn(8, 16)
    with cpu.observe(races=True) as log:
        out, words = torch.zeros(16), torch.zeros(3, dtype=torch.int32)
        locked[(8,)](x, out, words[0:], words[1:], B=16, LOCK=True)
        torch.testing.assert_close(out, x.sum(0))
        tickets = torch.zeros(8, 16)
        by_ticket[(8,)](tickets, words[2:], B=16)
        assert sorted(tickets[:, 0].tolist()) == list(range(1, 9))
        total, words = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
        last_one_adds[(8,)](x[0], torch.zeros(8), total, words, B=8)
        torch.testing.assert_close(total[0], x[0, :8].sum())
    assert not log.violations


def test_the_same_without_its_lock():
    out, words = torch.zeros(16), torch.zeros(3, dtype=torch.int32)
    with cpu.observe(races=True, reports=1000) as log:
        locked[(3,)](torch.ones(3, 16), out, words[0:], words[1:], B=16, LOCK=False)
    lines = {(v.problem, v.line) for v in log.violations}
    assert lines == {
        ("race", line_of(locked, "first = ")), ("race", line_of(locked, "value += ")),
        ("conflict", line_of(locked, "tl.store(out")),
    }  # fmt: skip


@triton.jit
def shift_in_place(x, n, forward: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i + 1, mask=i + 1 < n) if forward else tl.load(x + i - 1, mask=(i > 0) & (i < n))
    tl.store(x + i, value, mask=i < n)


def test_neighbours_in_place():
    line_of_load, line_of_store = (line_of(shift_in_place, text) for text in ("tl.load", "tl.store"))
    with cpu.observe(races=True) as log:
        shift_in_place[(3,)](torch.arange(24.0), 24, forward=True, B=8)
    assert [(v.kind, v.line, v.program[0], v.other[0], v.offset) for v in log.violations] == [
        ("store", line_of_store, 1, 0, 8), ("store", line_of_store, 2, 1, 16)
    ]  # fmt: skip
    with cpu.observe(races=True) as log:
        shift_in_place[(3,)](torch.arange(24.0), 24, forward=False, B=8)
    assert [(v.kind, v.line, v.program[0], v.other[0], v.offset) for v in log.violations] == [
        ("load", line_of_load, 1, 0, 7), ("load", line_of_load, 2, 1, 15)
    ]  # fmt: skip
    with cpu.observe(races=True) as log:
        shift_in_place[(1,)](torch.arange(24.0), 24, forward=True, B=32)
        tiles[(3,)](x := torch.zeros(24), x, 24, 8, B=8)
    assert not log.violations


@triton.jit
def gather_scatter(x, index, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    to = tl.load(index + i, mask=i < n, other=0)
    tl.store(out + to, tl.load(x + i, mask=i < n), mask=i < n)


def test_scattering_to_places_that_repeat():
    x, index = torch.arange(16.0), torch.arange(16, dtype=torch.int32)
    with cpu.observe(conflicts=True) as log:
        gather_scatter[(2,)](x, index, torch.zeros(16), 16, B=8)
        gather_scatter[(1,)](x, index % 4, torch.zeros(16), 16, B=16)
    assert not log.violations
    with cpu.observe(conflicts=True, order=-1) as log:
        gather_scatter[(2,)](x, index % 12, torch.zeros(16), 16, B=8)
    assert [(v.offset, v.program[0], v.other[0], v.lane) for v in log.violations] == [(k, 0, 1, (k,)) for k in range(4)]


@triton.jit
def overlapping_arguments(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.program_id(0) + 1.0)
    tl.store(y + i, tl.program_id(0) + 1.0)


def test_arguments_that_share_memory():
    storage = torch.zeros(40)
    with cpu.observe(conflicts=True) as log:
        overlapping_arguments[(2,)](storage[:16], storage[20:36], B=8)
        assert not log.violations
        overlapping_arguments[(2,)](storage[:16], storage[4:20], B=8)
    assert {(v.argument, v.program, v.other) for v in log.violations} == {("x", (1, 0, 0), (0, 0, 0))}
    assert sorted(v.offset for v in log.violations) == [8, 9, 10, 11]


def test_knobs_make_conflicts_raise():
    cpu.knobs.instruments = ("bounds", "conflicts")
    try:
        with pytest.raises(cpu.MemoryFault, match="write conflict"):
            tiles[(3,)](torch.zeros(20), torch.zeros(20), 20, 6, B=8)
        with pytest.raises(ValueError, match="unknown instruments"):
            cpu.knobs.instruments = ("bound",)
    finally:
        cpu.knobs.instruments = ("bounds",)
    tiles[(3,)](torch.zeros(20), torch.zeros(20), 20, 6, B=8)
