"""Accesses outside of an argument's view: who, where, what; raised, or observed."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from bit_values import TRITON

from fuzz.backends import cpu


@triton.jit
def copy(source, target, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(source + i)
    tl.store(target + i, value, mask=i < n)


def line_of(function, text):
    lines, start = inspect.getsourcelines(function.fn)
    return start + next(number for number, line in enumerate(lines) if text in line)


def test_a_load_is_named_with_everything():
    source, target = torch.zeros(12), torch.zeros(64)
    with pytest.raises(cpu.OutOfBounds) as caught:
        copy[(2,)](source, target, 64, B=8)
    line = line_of(copy, "tl.load")
    want = cpu.Violation("copy", __file__, line, "source", "load", (1, 0, 0), (4,), 12, 4)
    assert caught.value.violation == want
    assert str(caught.value) == str(want)
    for part in ("copy", f"{__file__}:{line}", "'source'", "load", "(1, 0, 0)", "(4,)", "element 12", "4 bytes"):
        assert part in str(want)
    assert str(want).endswith("value = tl.load(source + i)")


def test_a_store_is_named_and_the_process_goes_on():
    source, target = torch.arange(16.0), torch.zeros(16)
    with pytest.raises(cpu.OutOfBounds) as caught:
        copy[(2,)](source, target.set_(target.untyped_storage()[:44], 0, (11,)), 16, B=8)
    violation = caught.value.violation
    assert (violation.kind, violation.argument, violation.offset) == ("store", "target", 11)


def test_a_store_outside_of_a_view_is_dropped():
    source, target = torch.arange(16.0), torch.zeros(16)
    with cpu.knobs.set(bounds="view"):
        with pytest.raises(cpu.OutOfBounds):
            copy[(2,)](source, target[:11], 16, B=8)
        assert target.tolist() == [*range(11), 0, 0, 0, 0, 0]
        copy[(2,)](source, target, 16, B=8)
    assert torch.equal(source, target)


def test_views_inside_of_a_storage_are_bounds():
    storage = torch.arange(100.0)
    with cpu.knobs.set(bounds="view"), cpu.observe() as log:
        copy[(1,)](storage[10:14], torch.zeros(8), 8, B=8)
        copy[(1,)](storage.as_strided((2, 2), (3, 1), 50), torch.zeros(8), 8, B=8)
    assert [violation.offset for violation in log.violations] == [4, 5, 6, 7, 5, 6, 7]


@triton.jit
def around(x, out, shift, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i + shift))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_loads_outside_give_nan(dtype):
    x, out = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
    with cpu.observe() as log:
        around[(1,)](x, out, -3, B=8)
    assert out.isnan().tolist() == [True] * 3 + [False] * 5
    assert [(v.offset, v.lane, v.size) for v in log.violations] == [
        (-3, (0,), dtype.itemsize), (-2, (1,), dtype.itemsize), (-1, (2,), dtype.itemsize)
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_loads_outside_give_the_largest_integer(dtype):
    x, out = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
    with cpu.observe():
        around[(1,)](x, out, 6, B=8)
    assert out.tolist() == [1, 1] + [torch.iinfo(dtype).max] * 6


def test_empty_tensors_have_no_elements():
    out = torch.zeros(8)
    for nothing in (torch.zeros(0), torch.zeros(3, 0)):
        with cpu.observe(reports=100) as log:
            around[(1,)](nothing, out, 0, B=8)
        assert len(log.violations) == 8 and {v.argument for v in log.violations} == {"x"}
        with pytest.raises(cpu.OutOfBounds):
            around[(1,)](nothing, out, 0, B=8)


@triton.jit
def optional(x, out):
    if x is None:
        tl.store(out, 1.0)
    else:
        tl.store(out, tl.load(x))


def test_none_is_a_constant_of_the_kernel():
    out = torch.zeros(1)
    optional[(1,)](None, out)
    assert out.item() == 1


def test_a_pointer_that_turns_out_to_be_none_has_no_elements():
    compiled = around.warmup(torch.float32, torch.float32, 0, B=8, grid=(1,))
    with cpu.observe(reports=100) as log:
        compiled[(1, 1, 1)](None, torch.zeros(8), 0, 8)
    assert len(log.violations) == 8 and {v.argument for v in log.violations} == {"x"}


def test_huge_offsets_do_not_wrap_around():
    x, out = torch.ones(8), torch.zeros(8)
    with cpu.observe() as log:
        around[(1,)](x, out, 2**62 - 4, B=8)
        around[(1,)](x, out, -1, B=8)
    # Addresses are 64 bits wide, as on a GPU: 4 * 2**62 elements are no shift at all.
    assert [v.offset for v in log.violations] == [-4, -3, -2, -1, -1]


@triton.jit
def partial(x, out):
    tl.store(out, tl.load(x.to(tl.pointer_type(tl.int32))))


def test_an_access_that_is_half_inside_is_outside():
    with cpu.observe() as log:
        partial[(1,)](torch.zeros(3, dtype=torch.int8), torch.zeros(1, dtype=torch.int32))
        partial[(1,)](torch.zeros(4, dtype=torch.int8), torch.zeros(1, dtype=torch.int32))
    assert len(log.violations) == 1


@triton.jit
def atomics(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.atomic_add(x + i, 1, mask=i < n))


def test_atomics_outside_are_dropped():
    x, out = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    with cpu.knobs.set(bounds="view"), cpu.observe() as log:
        atomics[(1,)](x[:3], out, 5, B=8)
    assert x.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert out.tolist() == [0, 0, 0, 2**31 - 1, 2**31 - 1, 0, 0, 0]
    assert [(v.kind, v.argument, v.lane) for v in log.violations] == [("atomic", "x", (3,)), ("atomic", "x", (4,))]


@triton.jit
def either(x, y, out, which, n, B: tl.constexpr):
    i = tl.arange(0, B)
    chosen = tl.where(which > 0, x, y)
    pointer = chosen + i
    for _ in range(n):
        tl.store(out + i, tl.load(pointer))
        pointer += 1


def test_provenance_through_select_and_loops():
    x, y, out = torch.zeros(8), torch.zeros(20), torch.zeros(8)
    with cpu.observe() as log:
        either[(1,)](x, y, out, 0, 12, B=8)
        assert not log.violations
        either[(1,)](x, y, out, 1, 2, B=8)
    assert [(v.argument, v.offset, v.lane) for v in log.violations] == [("x", 8, (7,))]


@triton.jit
def swapping(x, y, n):
    a, b = x, y
    for _ in range(n):
        tl.store(a + 10, 1.0)
        a, b = b, a


def test_provenance_of_pointers_that_a_loop_swaps():
    x, y = torch.zeros(4), torch.zeros(16)
    with cpu.observe() as log:
        swapping[(1,)](x, y, 4)
    assert [v.offset for v in log.violations] == [10, 10] and y[10] == 1


@triton.jit
def helper(pointer, i):
    return tl.load(pointer + i)


@triton.jit
def calls(x, out, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(out + i, helper(x, i))


def test_lanes_of_matrices_and_lines_of_helpers():
    with cpu.observe() as log:
        calls[(1,)](torch.zeros(5), torch.zeros(8), B=4)
    assert [v.lane for v in log.violations] == [(2, 1), (3, 0), (3, 1)]
    assert log.violations[0].line == line_of(helper, "tl.load")


def test_only_the_first_reports_are_kept():
    x, out = torch.zeros(4), torch.zeros(64)
    with cpu.observe(reports=3) as log:
        around[(1,)](x, out, 0, B=64)
        around[(1,)](x, out, 0, B=64)
    assert [v.offset for v in log.violations] == [4, 5, 6]
    assert log.count == 120 and log.launches == ["around"] * 2
    with pytest.raises(cpu.OutOfBounds):
        around[(1,)](x, out, 0, B=64)


@triton.jit
def planes(x, out):
    at = tl.program_id(0) + 2 * tl.program_id(1) + 6 * tl.program_id(2)
    tl.store(out + at, tl.load(x + at))


def test_programs_of_a_permuted_grid_keep_their_names():
    with cpu.observe(order=3, reports=100) as log:
        planes[(2, 3, 4)](torch.zeros(20), torch.zeros(24))
    seen = sorted(v.program for v in log.violations)
    assert seen == sorted((at % 2, at // 2 % 3, at // 6) for at in range(20, 24))
    assert all(v.lane == () for v in log.violations)


@triton.jit
def pointer_table(table, out):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(pointer))


def test_a_null_pointer_in_memory_is_reported():
    with pytest.raises(cpu.OutOfBounds, match="at 0x0, which a pointer from memory led to"):
        pointer_table[(1,)](torch.zeros(1, dtype=torch.int64), torch.zeros(1))


@triton.jit
def gather(x, index, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + tl.load(index + i)))


@pytest.mark.parametrize("view", [lambda x: x[:4], lambda x: x.as_strided((4,), (0,)), lambda x: x.view(2, 4)[0]])
def test_a_view_reaches_as_far_as_its_storage(view):
    x, index, out = torch.arange(8.0), torch.tensor([7, 2, 5, 0]), torch.empty(4)
    gather[(1,)](view(x), index, out, 4)
    assert torch.equal(out, x[index])
    with pytest.raises(cpu.OutOfBounds):
        gather[(1,)](view(x), index + 1, out, 4)
    with cpu.knobs.set(bounds="view"), pytest.raises(cpu.OutOfBounds):
        gather[(1,)](view(x), index, out, 4)


def test_bounds_are_by_storage_or_by_view():
    with pytest.raises(ValueError, match="bounds is one of storage, view"):
        cpu.knobs.bounds = "nothing"


@triton.jit
def follow(table, out, distance, n: tl.constexpr):
    i = tl.arange(0, n)
    row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * n + i, tl.load(row + distance + i))


@triton.jit
def follow_typed(table, out, n: tl.constexpr):
    i = tl.arange(0, n)
    pointers = table.to(tl.pointer_type(tl.pointer_type(tl.float32)))
    row = tl.load(pointers + tl.program_id(0))
    tl.store(out + tl.program_id(0) * n + i, tl.load(row + i))
    tl.store(pointers + tl.program_id(0), row + n)


@triton.jit
def follow_argument(address: tl.int64, out):
    tl.store(out, tl.load(address.to(tl.pointer_type(tl.float32)) + 1))


def test_pointers_from_memory_lead_to_any_tensor():
    a, b, out = torch.arange(4.0), torch.arange(4.0) + 10, torch.zeros(8)
    table = torch.tensor([a.data_ptr(), b.data_ptr()])
    follow[(2,)](table, out, 0, 4)
    assert torch.equal(out, torch.cat([a, b]))
    follow_argument[(1,)](b.data_ptr(), out)
    assert out[0] == 11


@pytest.mark.skipif(TRITON >= (3, 9), reason="the front end of Triton 3.9 aborts at a pointer to pointers")
def test_pointers_to_pointers_lead_to_any_tensor():
    a, b, out = torch.arange(4.0), torch.arange(4.0) + 10, torch.zeros(8)
    table = torch.tensor([a.data_ptr(), b.data_ptr()])
    follow_typed[(2,)](table, out, 4)
    assert torch.equal(out, torch.cat([a, b]))
    assert table.tolist() == [a.data_ptr() + 16, b.data_ptr() + 16]


def test_pointers_from_memory_are_checked():
    a, out = torch.arange(4.0), torch.zeros(4)
    table = torch.tensor([a.data_ptr()])
    with pytest.raises(cpu.OutOfBounds, match="load of 4 bytes at 0x[0-9a-f]+, which a pointer from memory led to"):
        follow[(1,)](table, out, 1 << 40, 4)
    with cpu.observe(unwritten=True, conflicts=True, races=True, overflow=True, counters=True) as log:
        follow[(1,)](table, out, 1 << 40, 4)
        follow[(1,)](table, out, 0, 4)
    assert (log.count, log.violations[0].argument) == (4, "")
    assert all(launch.pointers is None for launch in log.recorded_launches)
    assert torch.equal(out, a)


class TypedPointer:
    """The least that Triton takes for a tensor."""

    def __init__(self, address: int, dtype: torch.dtype) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


def test_a_pointer_without_a_shape_reaches_to_the_end_of_its_memory():
    x, out = torch.arange(12.0), torch.zeros(8)
    pointer = TypedPointer(x[4:].data_ptr(), x.dtype)
    around[(1,)](pointer, TypedPointer(out.data_ptr(), out.dtype), 0, B=8)
    assert torch.equal(out, x[4:])
    with pytest.raises(cpu.OutOfBounds, match="element 8 of argument 'x'"):
        around[(1,)](pointer, out, 1, B=8)
    with pytest.raises(cpu.OutOfBounds, match="element 0 of argument 'x'"):
        around[(1,)](TypedPointer(64, x.dtype), out, 0, B=8)
    with cpu.observe(unwritten=True) as log:
        nobody = torch.empty(8)
        around[(1,)](TypedPointer(nobody.data_ptr(), nobody.dtype), out, 0, B=8)
    assert {violation.problem for violation in log.violations} == {"unwritten"}


HELPERS = """
import triton
import triton.language as tl

@triton.jit
def read(x, i):
    return tl.load(x + i)
"""
CALLER = """
import torch
import triton
import triton.language as tl
import {package}.parts as parts
from {package}.other.helpers import read

@triton.jit
def first(x, i):
    return tl.load(x + i + 100)

@triton.jit
def calling(x, out, FAR: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, first(x, i) if FAR else read(x, i) + parts.helpers.read(x, i))

for size, far in (4, 0), (104, 1):
    try:
        calling[(1,)](torch.zeros(size), torch.zeros(8), far, B=8)
    except RuntimeError as error:
        print(error)
"""


def test_a_kernel_from_the_cache_names_the_files_of_the_present_checkout(tmp_path: Path) -> None:
    """Triton's cache goes by the text of the kernel and its helpers, and keeps the paths of their first files."""
    for checkout in ("before", "now"):
        package = tmp_path / checkout / "package"
        for folder in (package / "other", package / "parts"):
            folder.mkdir(parents=True)
            (folder / "helpers.py").write_text(HELPERS)
        (package / "parts" / "__init__.py").write_text("from . import helpers")
        (package / "helpers.py").write_text(CALLER.format(package="package"))
        command = [sys.executable, "-m", "fuzz.backends.cpu", "-m", "package.helpers"]
        ended = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=False)
        near, far = ended.stdout.splitlines()
        assert f"{package / 'other' / 'helpers.py'}:" in near and f"{package / 'helpers.py'}:" in far, ended.stderr
    assert "before" not in ended.stdout
