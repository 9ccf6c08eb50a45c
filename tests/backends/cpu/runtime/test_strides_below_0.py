"""Arguments with elements before their address, as FlagGems' flip passes: in bounds, out of them, and instrumented."""

import numpy
import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu


class Strided:
    """Any strides over a tensor's memory, from one of its elements on. It has the tensor's storage."""

    def __init__(self, tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        self.tensor, self.dtype, self.shape, self.strides, self.offset = tensor, tensor.dtype, shape, strides, offset

    def data_ptr(self) -> int:
        return self.tensor.data_ptr() + self.offset * self.element_size()

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def element_size(self) -> int:
        return self.tensor.element_size()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.tensor.untyped_storage()


def backwards(tensor: torch.Tensor) -> Strided:
    """A tensor of one dim from its last element to its first."""
    return Strided(tensor, tuple(tensor.shape), (-1,), len(tensor) - 1)


@triton.jit
def copy(x, out, x_step, out_step, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i * out_step, tl.load(x + i * x_step, mask=i < n), mask=i < n)


@triton.jit
def gather(x, index, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + tl.load(index + i, mask=i < n), mask=i < n), mask=i < n)


@triton.jit
def add(x, value, n):
    for i in range(n):
        tl.atomic_add(x - i, value)
        tl.store(x - i, tl.load(x - i) * 2)


@pytest.mark.parametrize("compiler", ["quick", "auto"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.float64])
def test_reads_and_writes_backwards(dtype, compiler):
    x = torch.arange(20).to(dtype)
    with cpu.knobs.set(compiler=compiler):
        out = torch.zeros_like(x)
        copy[(3,)](backwards(x), out, -1, 1, 20, B=8)
        assert torch.equal(out, x.flip(0))
        out = torch.zeros_like(x)
        copy[(3,)](x, backwards(out), 1, -1, 20, B=8)
        assert torch.equal(out, x.flip(0))
        copy[(3,)](backwards(x), backwards(out), -1, -1, 20, B=8)
        assert torch.equal(out, x)


def test_indexes_that_are_loaded_and_single_elements():
    x, out, index = torch.arange(8.0), torch.zeros(8), torch.tensor([0, -7, -3, -3])
    gather[(1,)](backwards(x), index, out, 4, B=8)
    assert out.tolist() == [7, 0, 4, 4, 0, 0, 0, 0]
    add[(1,)](backwards(x), 1.0, 8)
    assert torch.equal(x, 2 * (torch.arange(8.0) + 1))


def test_a_flip_of_one_dim():
    x, out = torch.arange(12.0).reshape(3, 4), torch.zeros(12)
    index = torch.tensor([row * 4 - column for row in range(3) for column in range(4)])
    gather[(1,)](Strided(x, (3, 4), (4, -1), 3), index, out, 12, B=16)
    assert torch.equal(out.view(3, 4), x.flip(1))


@pytest.mark.parametrize(("index", "bounds"), [(-8, "storage"), (1, "storage"), (-8, "view"), (1, "view")])
def test_one_element_outside_is_named(index, bounds):
    x, out = torch.arange(8.0), torch.zeros(8)
    with cpu.knobs.set(bounds=bounds), pytest.raises(cpu.OutOfBounds) as caught:
        gather[(1,)](backwards(x), torch.tensor([0, index]), out, 2, B=2)
    assert f"load of 4 bytes at element {index} of argument 'x'" in str(caught.value)
    assert caught.value.__context__ is None
    with cpu.knobs.set(bounds=bounds), pytest.raises(cpu.OutOfBounds, match="store of 4 bytes at element -8"):
        copy[(1,)](torch.zeros(16), backwards(x), 1, -1, 9, B=16)


def test_a_part_of_a_storage_begins_with_its_first_element_in_memory():
    x, out = torch.arange(16.0), torch.zeros(8)
    part = Strided(x, (8,), (-1,), 11)
    for index, bounds in ((-8, "storage"), (5, "storage"), (-8, "view"), (1, "view")):
        with cpu.knobs.set(bounds=bounds), pytest.raises(cpu.OutOfBounds, match=f"element {index} of argument 'x'"):
            gather[(1,)](part, torch.tensor([0, index]), out, 2, B=2)
    gather[(1,)](part, torch.tensor([-7, 4]), out, 2, B=2)
    assert out[:2].tolist() == [4, 15]


def test_strides_that_leave_the_storage_are_not_believed():
    x, out = torch.arange(16.0), torch.zeros(8)
    beyond = Strided(x, (20,), (-1,), 7)
    with pytest.raises(cpu.OutOfBounds, match="element -8 of argument 'x'"):
        gather[(1,)](beyond, torch.tensor([-7, -8]), out, 2, B=2)


def test_a_view_with_an_offset_has_nothing_before_it():
    x, out = torch.arange(16.0), torch.zeros(8)
    for view in (x[4:12], Strided(x, (8,), (1,), 4), Strided(x, (1, 8), (-8, 1), 4)):
        gather[(1,)](view, torch.tensor([0, 7]), out, 2, B=2)
        assert out[:2].tolist() == [4, 11]
        with pytest.raises(cpu.OutOfBounds, match="element -1 of argument 'x'"):
            gather[(1,)](view, torch.tensor([0, -1]), out, 2, B=2)


def test_a_compiled_kernel_takes_both_kinds_by_turns():
    """Libraries keep compiled kernels by dtypes and alignment alone."""
    x, out, entered, left = torch.arange(16.0), torch.zeros(8), [], []
    kernel = copy[(1,)](x, out, 2, 1, 8, B=8)
    arguments = (0, kernel.function, kernel.packed_metadata, "launch", entered.append, left.append)
    for step, argument in ((-2, backwards(x)), (2, x), (-2, backwards(x))):
        kernel.run(1, 1, 1, *arguments, argument, out, step, 1, 8, 8)
        assert torch.equal(out, (x.flip(0) if step < 0 else x)[::2])
    assert entered == left == ["launch"] * 3


@triton.jit
def follow(table, x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    row = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + i, tl.load(row + i) + tl.load(x - i))


def test_beside_pointers_that_are_read_from_memory():
    x, out = torch.arange(4.0), torch.zeros(4)
    follow[(1,)](torch.tensor([x.data_ptr()]), backwards(x), out, 4)
    assert out.tolist() == [3, 3, 3, 3]


def test_unwritten_elements():
    with cpu.observe(unwritten=True) as log:
        x, out = torch.empty(8), torch.empty(8)
        copy[(1,)](torch.ones(8), backwards(x), 1, -1, 8, B=8)
        copy[(1,)](backwards(x), out, -1, 1, 8, B=8)
        assert not log.violations
        x = torch.empty(8)
        copy[(1,)](torch.ones(8), backwards(x), 1, -1, 6, B=8)
        copy[(1,)](backwards(x), out, -1, 1, 8, B=8)
    assert [(v.problem, v.argument, v.offset) for v in log.violations] == [
        ("unwritten", "x", -6),
        ("unwritten", "x", -7),
    ]


@triton.jit
def both_ways(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x - i, tl.program_id(0) + 1.0, mask=i < n)
    tl.store(y + i, tl.program_id(0) + 1.0, mask=i < n)


@triton.jit
def tiles(x, step, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    tl.store(x - i, tl.program_id(0) + tl.zeros([B], tl.float32))


def test_conflicts():
    with cpu.observe(conflicts=True) as log:
        tiles[(2,)](backwards(torch.zeros(16)), 8, B=8)
        assert not log.violations
        tiles[(2,)](backwards(torch.zeros(16)), 6, B=8)
    assert [(v.problem, v.argument, v.offset) for v in log.violations] == [("conflict", "x", -6), ("conflict", "x", -7)]
    x = torch.zeros(16)
    with cpu.observe(conflicts=True) as log:
        both_ways[(2,)](backwards(x), x[1:], 4, B=2)
        assert not log.violations
        both_ways[(2,)](backwards(x[:5]), x[1:], 4, B=2)
    assert {v.problem for v in log.violations} == {"conflict"}
    assert {(v.argument, v.offset) for v in log.violations} == {("x", -2), ("x", -3), ("y", 2), ("y", 3)}


@triton.jit
def shift(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x - i, tl.load(x - i - 1, mask=i < n - 1, other=0) + 1, mask=i < n)


def test_races():
    with cpu.observe(conflicts=True, races=True) as log:
        shift[(2,)](backwards(torch.zeros(16)), 16, B=8)
    assert {(v.problem, v.argument, v.offset) for v in log.violations} == {("race", "x", -8)}


@triton.jit
def far(x, out, step, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x - i * step))


def test_offsets_that_wrap_around():
    with cpu.observe(overflow=True) as log:
        far[(1,)](backwards(torch.zeros(8)), torch.zeros(2), 1, B=2)
        assert not log.violations
        far[(1,)](backwards(torch.zeros(8)), torch.zeros(4), 2**30, B=4)
    assert "overflow" in {v.problem for v in log.violations}
    assert all(v.argument == "x" for v in log.violations)


def test_all_instruments_of_a_right_kernel_in_any_order():
    x = torch.arange(20.0)
    with cpu.observe(-1, unwritten=True, conflicts=True, races=True, overflow=True, counters=True) as log:
        out = torch.empty(20)
        copy[(3,)](backwards(x), out, -1, 1, 20, B=8)
    assert not log.violations and log.launches == ["copy"] and torch.equal(out, x.flip(0))


@pytest.mark.parametrize("unwritten", [False, True])
def test_a_recorded_launch_is_repeated_on_other_memory(unwritten):
    memory, out = torch.arange(24.0).view(3, 8), torch.zeros(8)
    with cpu.observe(unwritten=unwritten) as log:
        copy[(1,)](backwards(memory[0]), out, -1, 1, 8, B=8)
    (launch,) = log.recorded_launches
    pointer = launch.pointers[0]
    assert (pointer.start, pointer.end) == (memory.data_ptr(), memory.data_ptr() + memory.nbytes)
    assert launch.repeat(1, {pointer.slot: numpy.array([memory[2].data_ptr() - memory.data_ptr()])}).tolist() == [0]
    assert torch.equal(out, memory[2].flip(0))
