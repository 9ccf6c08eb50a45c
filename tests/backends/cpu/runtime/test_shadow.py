"""Loads of memory that nobody wrote: found and named to the line, and silent where somebody did."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from source_lines import line_of

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.shadow import ShadowObserver
from fuzz.backends.poison import POISON

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32, torch.int64]


@triton.jit
def partial_sums(x, partial, n, written, B: tl.constexpr):
    program = tl.program_id(0)
    i = program * B + tl.arange(0, B)
    if program < written:
        tl.store(partial + program, tl.sum(tl.load(x + i, mask=i < n, other=0), 0))


@triton.jit
def add_up(partial, out, count, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(partial + i, mask=i < count, other=0), 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_partial_sum_that_is_lost(dtype):
    x = torch.ones(40).to(dtype)
    for written in (5, 4):
        with cpu.observe(unwritten=True) as log:
            partial, out = torch.empty(5, dtype=dtype), torch.empty(1, dtype=dtype)
            partial_sums[(5,)](x, partial, 40, written, B=8)
            add_up[(1,)](partial, out, 5, B=8)
        if written == 5:
            assert not log.violations and out.item() == 40
    line = line_of(add_up, "tl.load")
    want = cpu.Violation("add_up", __file__, line, "partial", "load", (0, 0, 0), (4,), 4, dtype.itemsize, "unwritten")
    assert log.violations == [want]
    assert "nobody wrote" in str(want) and f"{__file__}:{line}" in str(want) and "'partial'" in str(want)


@triton.jit
def accumulate(x, out, rows, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for row in range(rows):
        total = tl.load(out + i, mask=i < n)
        tl.store(out + i, total + tl.load(x + row * n + i, mask=i < n), mask=i < n)


def test_accumulating_into_memory_that_is_not_zeroed():
    x = torch.randn(3, 5)
    with cpu.observe(unwritten=True) as log:
        accumulate[(1,)](x, torch.empty(5), 3, 5, B=8)
        accumulate[(1,)](x, torch.zeros(5), 3, 5, B=8)
        accumulate[(1,)](x, torch.empty(5).zero_(), 3, 5, B=8)
        accumulate[(1,)](x, torch.empty(5).copy_(x[0]), 3, 5, B=8)
        torch.add(x[0], x[1], out=(given := torch.empty(5)))
        accumulate[(1,)](x, given, 3, 5, B=8)
    assert [v.lane for v in log.violations] == [(0,), (1,), (2,), (3,), (4,)]
    assert {(v.line, v.problem) for v in log.violations} == {(line_of(accumulate, "total ="), "unwritten")}


@triton.jit
def tally(x, counts, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def scalar_carry(state, out):
    tl.store(out, tl.load(state + 2) + 1)


def test_atomics_and_scalars():
    x = torch.tensor([0, 2, 2], dtype=torch.int32)
    with cpu.observe(unwritten=True) as log:
        tally[(1,)](x, torch.empty(3, dtype=torch.int32), 3, B=4)
        tally[(1,)](x, torch.zeros(3, dtype=torch.int32), 3, B=4)
        state = torch.empty(3)
        state[:2] = 1
        scalar_carry[(1,)](state, torch.empty(1))
        state[2:] = 1
        scalar_carry[(1,)](state, torch.empty(1))
    seen = [(v.kernel, v.kind, v.offset, v.line) for v in log.violations]
    first = [("tally", "atomic", at, line_of(tally, "atomic_add")) for at in (0, 2)]
    assert seen == [*first, ("scalar_carry", "load", 2, line_of(scalar_carry, "tl.load"))]


@triton.jit
def copy(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.int32, torch.int64])
def test_values_that_look_like_poison_are_written_by_whom_writes_them(dtype):
    word = POISON[str(dtype).removeprefix("torch.")]
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[dtype.itemsize]
    poison = torch.from_numpy(np.full(8, word, bits)).view(dtype)
    with cpu.observe(unwritten=True) as log:
        first, second = torch.empty(8, dtype=dtype), torch.empty(2, 8, dtype=dtype).T
        copy[(1,)](poison, first, 8, B=8)
        copy[(1,)](first, torch.empty(8, dtype=dtype), 8, B=8)
        second[:, 1].copy_(poison)
        second[:, 0].copy_(poison)
        copy[(1,)](second.reshape(-1), torch.empty(16, dtype=dtype), 16, B=16)
        copy[(1,)](poison, torch.empty(8, dtype=dtype), 8, B=8)
        assert not log.violations
        copy[(1,)](torch.empty(8, dtype=dtype), torch.empty(8, dtype=dtype), 3, B=8)
    assert [v.offset for v in log.violations] == [0, 1, 2]


def test_memory_from_outside_and_bytes_are_not_watched():
    before = torch.empty(8)
    before.view(torch.int32).fill_(POISON["float32"])
    with cpu.observe(unwritten=True) as log:
        copy[(1,)](before, torch.empty(8), 8, B=8)
        copy[(1,)](torch.empty(8, dtype=torch.int8), torch.empty(8, dtype=torch.int8), 8, B=8)
    with cpu.observe() as plain:
        copy[(1,)](torch.empty(8), torch.empty(8), 8, B=8)
    assert not log.violations and not plain.violations


ALLOCATIONS = {
    "empty": lambda: torch.empty(8),
    "permuted": lambda: torch.empty_permuted((2, 4), (1, 0)),
    "strided": lambda: torch.empty_strided((2, 4), (1, 2)),
    "like": lambda: torch.empty_like(torch.ones(8)),
    "new": lambda: torch.ones(1).new_empty(8),
    "new strided": lambda: torch.ones(1).new_empty_strided((2, 4), (1, 2)),
    "class": lambda: torch.Tensor(8),
    "padded": lambda: torch.empty_strided((2, 8), (16, 1)),
    "resized": lambda: torch.empty(0).resize_(8),
    "resized again": lambda: torch.empty(2).resize_(8),
    "resized from padded": lambda: torch.empty_strided((2, 2), (3, 1)).resize_(64),
}


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_each_way_of_allocating_memory_is_watched(allocate):
    with cpu.observe(unwritten=True) as log:
        copy[(1,)](allocate(), torch.empty(8), 8, B=8)
    assert [v.offset for v in log.violations] == list(range(8))


@triton.jit
def copy_rows(x, out, stride, step, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(out + row * B + i, tl.load(x + row * stride + i * step))


@pytest.mark.parametrize("strides", [(16, 1), (20, 2)])
def test_gaps_between_elements_that_are_written(strides):
    with cpu.observe(unwritten=True) as log:
        x = torch.empty_strided((2, 8), strides)
        copy_rows[(2,)](x.copy_(torch.ones(2, 8)), torch.empty(16), *strides, B=8)
        assert not log.violations
        y = torch.empty_strided((2, 8), strides)
        y[1] = 1.0
        copy_rows[(2,)](y, torch.empty(16), *strides, B=8)
    assert [v.offset for v in log.violations] == [i * strides[1] for i in range(8)]


def test_memory_with_gaps_that_is_too_large_is_left_alone():
    with cpu.observe(unwritten=True) as log:
        x = torch.empty_strided((2, 8), (1 << 26, 1))
        copy_rows[(1,)](x, torch.empty(8), 1 << 26, 1, B=8)
    assert not log.violations


def test_what_was_written_before_a_tensor_grew_stays_written():
    poison = torch.full((2,), POISON["float32"], dtype=torch.int32).view(torch.float32)
    with cpu.observe(unwritten=True) as log:
        x = torch.empty(4)
        x[2:].copy_(poison)
        copy[(1,)](x.resize_(1000), torch.empty(8), 8, B=8)
        given = torch.zeros(2)
    assert [v.offset for v in log.violations] == [0, 1, 4, 5, 6, 7]
    with cpu.observe(unwritten=True) as log:
        given.resize_(1000)[2:] = 1
        copy[(1,)](given, torch.empty(8), 8, B=8)
    assert not log.violations


def add_into(given):
    torch.add(torch.ones(8), 1, out=given.resize_(0))
    return given


def multiply_into(given):
    torch.mm(torch.ones(2, 2), torch.ones(2, 4), out=given)
    return given


def set_to_grown_memory(given):
    memory = given.untyped_storage()
    memory.resize_(32)
    given.set_(memory, 0, (8,)).fill_(1.0)
    return given


def store_into_grown_memory(given):
    given.untyped_storage().resize_(32)
    copy[(1,)](torch.ones(8), given.as_strided((8,), (1,)), 8, B=8)
    return given


GROWN = {
    "out=": lambda: add_into(torch.empty(0)),
    "out= that was too small": lambda: add_into(torch.empty(2)),
    "out= of cat": lambda: torch.cat([torch.ones(4), torch.ones(4)], out=torch.empty(0)),
    "out= of mm": lambda: multiply_into(torch.empty(0)),
    "storage": lambda: set_to_grown_memory(torch.empty(0)),
    "storage, by a kernel": lambda: store_into_grown_memory(torch.empty(0)),
}


@pytest.mark.parametrize("grow", GROWN.values(), ids=GROWN)
def test_what_was_written_where_a_tensor_grew_unseen_stays(grow):
    with cpu.observe(unwritten=True) as log:
        x, out = grow().resize_(2, 4), torch.zeros(8)
        copy[(1,)](x, out, 8, B=8)
    assert not log.violations
    assert out.unique().tolist() in ([1.0], [2.0])


MOVED = {
    "set to a storage": lambda x: torch.empty(0).set_(x.untyped_storage()),
    "set to a part of a storage": lambda x: torch.empty(0).set_(x.untyped_storage(), 0, (2, 4), (4, 1)),
    "set to a tensor": lambda x: torch.empty(0).set_(x),
    "transposed in place": lambda x: x.t_(),
    "with a dim more": lambda x: x.unsqueeze_(0),
}


@pytest.mark.parametrize("move", MOVED.values(), ids=MOVED)
def test_memory_is_not_written_by_what_moves_a_tensor(move):
    with cpu.observe(unwritten=True) as log:
        x = torch.empty(2, 4)
        copy[(1,)](move(x), torch.zeros(8), 8, B=8)
        copy[(1,)](x, torch.zeros(8), 8, B=8)
    assert [v.offset for v in log.violations] == [*range(8), *range(8)]


def test_what_is_known_of_memory_is_known_where_a_tensor_is_set_to_it():
    with cpu.observe(unwritten=True) as log:
        first, second = torch.empty(8).fill_(1.0), torch.empty(8)
        first.set_(second)
        copy[(1,)](second.resize_(1000), torch.zeros(8), 8, B=8)
    assert [v.offset for v in log.violations] == list(range(8))


def test_memory_that_an_operation_has_given_back_is_not_tracked():
    memory = cpu.ShadowMemory()
    with ShadowObserver(memory):
        given = torch.empty(2)
        assert len(memory.allocations) == 1
        add_into(given)
    assert not memory.allocations


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint8])
def test_a_tensor_that_grows_as_another_dtype_is_left_alone(dtype):
    with cpu.observe(unwritten=True) as log:
        x = torch.empty(8).view(dtype).resize_(64).view(torch.float32)
        copy[(1,)](x, torch.zeros(8), 8, B=8)
    assert not log.violations


@triton.jit
def sum_of_rows(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros([B], dtype=tl.float32)
    for row in range(n):
        total += tl.load(x + row * B + i).to(tl.float32)
    tl.store(out + i, total)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int16, torch.int32])
def test_data_that_equals_a_poison_is_added_once(dtype):
    """A lane that holds the poison makes its loop look again at all lanes: what is added up must not count twice."""
    words = torch.tensor([0x5A5A, 0x7DA5, 0x7FA5, 0x5A5A5A5A, 0x7FA5A5A5, 0, 1, 2], dtype=torch.int64)
    size = 8 * torch.empty(0, dtype=dtype).element_size()
    fitting = (words & ((1 << size) - 1)).to(torch.int32 if size == 32 else torch.int16)
    x = fitting.repeat(3, 1).view(dtype)
    x = torch.where(x.isnan(), torch.ones_like(x), x) if dtype.is_floating_point else x
    out = torch.zeros(8)
    with cpu.observe(unwritten=True, conflicts=True) as log:
        sum_of_rows[(1,)](x, out, 3, B=8)
    assert not log.violations
    assert torch.equal(out, x[0].float() + x[1].float() + x[2].float())


class Buffer:
    """As much of a tensor as a kernel's launcher asks for."""

    def __init__(self, base):
        self.base, self.dtype, self.shape = base, base.dtype, base.shape
        self.data_ptr, self.stride, self.element_size = base.data_ptr, base.stride, base.element_size


def test_what_a_launcher_passes_in_place_of_a_tensor_is_watched():
    with cpu.observe(unwritten=True) as log:
        copy[(1,)](Buffer(torch.empty(8)), torch.zeros(8), 8, B=8)
    assert {one.problem for one in log.violations} == {"unwritten"}


def test_a_tensor_whose_words_are_reinterpreted_is_watched():
    with cpu.observe(unwritten=True) as log:
        copy[(1,)](triton.reinterpret(torch.empty(8, dtype=torch.int32), tl.float32), torch.zeros(8), 8, B=8)
    assert [one.kind for one in log.violations] != []
