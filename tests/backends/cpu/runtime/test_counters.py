"""Counters of branches, loops, masks and selects, and atomics."""

import pytest
import torch
import triton
import triton.language as tl
from source_lines import line_of

from fuzz.backends import cpu


@triton.jit(do_not_specialize=["turns"])
def counted(x, out, n, flag, turns, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0)
    if flag > 0:
        value += tl.sum(value, 0)
    for _ in range(turns):
        value += 1
    value = tl.where(value > 0, value, -value)
    tl.store(out + i, value, mask=i < n)


def seen(function):
    """What was counted, without what was not."""
    sites = zip(cpu.counters.sites, cpu.counters.values().tolist(), strict=True)
    lines = {text: line_of(function, text) for text in ("tl.load", "if flag", "for _", "tl.where", "tl.store")}
    names = {line: name for name, line in lines.items()}
    return {
        (names[site.line], site.outcome): value
        for site, value in sites if value and site.kernel == "counted" and site.file == __file__
    }  # fmt: skip


def run(n, flag, turns, x=1.0, programs=2):
    cpu.counters.clear()
    with cpu.observe(counters=True) as log:
        counted[(programs,)](torch.full((64,), x), torch.zeros(64), n, flag, turns, B=8)
    assert not log.violations
    return seen(counted)


def test_everything_is_counted():
    found = run(12, 0, 3)
    assert found == {
        ("tl.load", "all"): 1, ("tl.load", "some"): 1, ("if flag", "not taken"): 2, ("for _", "3"): 2,
        ("tl.where", "all true"): 2, ("tl.store", "all"): 1, ("tl.store", "some"): 1,
    }  # fmt: skip
    found = run(8, 2, 0, x=-1.0)
    assert found == {
        ("tl.load", "all"): 1, ("tl.load", "none"): 1, ("if flag", "taken"): 2, ("for _", "0"): 2,
        ("tl.where", "all false"): 2, ("tl.store", "all"): 1, ("tl.store", "none"): 1,
    }  # fmt: skip
    assert run(4, 0, 0, programs=1)["tl.where", "mixed"] == 1
    for turns, name in ((1, "1"), (2, "2"), (7, "4 to 7"), (31, "16 to 31"), (128, "128 or more")):
        assert run(8, 0, turns)["for _", name] == 2


def test_counters_saturate_and_places_stay():
    run(8, 0, 1)
    before = list(cpu.counters.sites)
    cpu.counters.clear()
    with cpu.observe(counters=True):
        for _ in range(40):
            counted[(8,)](torch.ones(64), torch.zeros(64), 64, 0, 1, B=8)
    assert seen(counted)["tl.load", "all"] == 255
    assert cpu.counters.sites[: len(before)] == before
    cpu.counters.clear()
    counted[(8,)](torch.ones(64), torch.zeros(64), 64, 0, 1, B=8)
    assert not cpu.counters.values().any()


@triton.jit
def collatz(x, out):
    value = tl.load(x + tl.program_id(0))
    steps = 0
    while value > 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    tl.store(out + tl.program_id(0), steps)


def test_loops_with_a_condition():
    out = torch.zeros(2, dtype=torch.int32)
    cpu.counters.clear()
    with cpu.observe(counters=True):
        collatz[(2,)](torch.tensor([6, 1], dtype=torch.int32), out)
    line = line_of(collatz, "while")
    sites = zip(cpu.counters.sites, cpu.counters.values(), strict=True)
    found = {site.outcome: int(value) for site, value in sites if site.kernel == "collatz" and site.line == line}
    assert out.tolist() == [8, 0] and found == {"taken": 8, "not taken": 2}


@triton.jit
def histogram(x, counts, total, biggest, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + value, 1, mask=i < n)
    tl.atomic_add(total, tl.sum(value, 0).to(tl.float32))
    tl.atomic_max(biggest, tl.max(value, 0))


def test_atomics_of_programs_in_another_order():
    x = torch.randint(0, 7, (10_000,), dtype=torch.int32)
    counts, total, biggest = torch.zeros(7, dtype=torch.int32), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    with cpu.observe(order=3):
        histogram[(10_000 // 16,)](x, counts, total, biggest, 10_000, B=16)
    assert torch.equal(counts.long(), torch.bincount(x, minlength=7))
    assert (total.item(), biggest.item()) == (x.sum().item(), x.max().item())


@triton.jit
def narrow_sum(x, out, B: tl.constexpr):
    tl.atomic_add(out + tl.arange(0, B) % 2, tl.load(x + tl.program_id(0) * B + tl.arange(0, B)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_atomics_of_other_widths(dtype):
    out = torch.zeros(2, dtype=dtype)
    narrow_sum[(16,)](torch.ones(128, dtype=dtype), out, B=8)
    assert out.tolist() == [64, 64]


@triton.jit
def hand_over(flag, out):
    """The last program waits for program 0."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        while tl.atomic_add(flag, 0) == 0:
            pass
        tl.store(out, tl.load(out + 1) + 1)
    elif tl.program_id(0) == 0:
        tl.store(out + 1, 41)
        tl.atomic_xchg(flag, 1)


def test_a_program_that_waits_for_another_one():
    with cpu.observe(races=True) as log:
        hand_over[(20,)](torch.zeros(1, dtype=torch.int32), out := torch.zeros(2, dtype=torch.int32))
    assert out.tolist() == [42, 41] and not log.violations


@triton.jit
def hand_over_by_loads(flag, out):
    """The second program waits for the first one without an atomic operation."""
    if tl.program_id(0) == 1:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(out, tl.load(out + 1) + 1)
    else:
        tl.store(out + 1, 41)
        tl.store(flag, 1)


def test_a_program_that_waits_for_a_plain_store():
    out = torch.zeros(2, dtype=torch.int32)
    with cpu.observe(races=True) as log:
        hand_over_by_loads[(2,)](torch.zeros(1, dtype=torch.int32), out)
    assert out.tolist() == [42, 41] and not log.violations


def test_counted_kernels_report_and_stop():
    out = torch.zeros(10)
    with cpu.observe(counters=True, reports=4) as log:
        counted[(50,)](torch.zeros(400), out, 400, 0, 0, B=8)
    assert log.count == 390 and len(log.violations) == 4 and {v.argument for v in log.violations} == {"out"}
    with pytest.raises(cpu.OutOfBounds):
        counted[(50,)](torch.zeros(400), out, 400, 0, 0, B=8)
