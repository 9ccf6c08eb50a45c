"""Guards, poison and layouts in memory: what a launcher does to its buffers is seen."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fuzz.backends.guarded_memory import (
    GUARD,
    POISON,
    TORCH_DTYPES,
    Buffer,
    address_range,
    allocate_buffer,
    fill_poison,
    find_poison,
    read_words,
)
from fuzz.backends.launcher_allocations import LauncherAllocations, fill_without_poison
from fuzz.model.case import Argument
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import recipe

LAYOUTS = [
    CONTIGUOUS, Layout(order=(1, 0)), Layout(pad=3), Layout(pad=2, offset=5), Layout(step=2), Layout(offset=1),
    Layout(expand=(0,)), Layout(expand=(1,)), Layout(order=(1, 0), step=3, pad=1, offset=2),
]  # fmt: skip
SHAPE = ("M", "N")
DIMS = {"M": 3, "N": 5}


def buffer(layout: Layout = CONTIGUOUS, dtype: str = "float32", dims: dict[str, int] = DIMS) -> Buffer:
    values = recipe("normal", 1) if TORCH_DTYPES[dtype].is_floating_point else recipe("random_bits", 1)
    return allocate_buffer("x", Argument(SHAPE, dtype, values, layout), dims, "cpu")


@pytest.mark.parametrize("dtype", sorted(POISON))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_has_the_words_and_strides_of_its_case(layout: Layout, dtype: str) -> None:
    argument = buffer(layout, dtype)
    assert argument.tensor.dtype == TORCH_DTYPES[dtype] and tuple(argument.tensor.shape) == (3, 5)
    assert argument.tensor.stride() == layout.strides((3, 5))
    assert np.array_equal(read_words(argument.tensor), np.broadcast_to(argument.words, (3, 5)))
    assert argument.inspect() == ([], [])


def test_a_plain_buffer_is_aligned_and_a_misaligned_one_is_not() -> None:
    size = torch.float32.itemsize
    plain, moved = buffer(), buffer(Layout(offset=1))
    assert (moved.tensor.data_ptr() - moved.base.ctypes.data) % 64 == size
    assert (plain.tensor.data_ptr() - plain.base.ctypes.data) == GUARD


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_written_element_is_seen_with_what_it_was(layout: Layout) -> None:
    argument = buffer(layout)
    index = tuple(0 if dim in layout.expand else size - 1 for dim, size in enumerate((3, 5)))
    before = int(argument.words[index])
    argument.tensor[2, 4] = 1.0
    writes, accesses = argument.inspect()
    assert accesses == []
    assert [(write.argument, write.first, write.got, write.want, write.count) for write in writes] == [
        ("x", index, 0x3F800000, before, 1)
    ]


@pytest.mark.parametrize("offset", [-1, -16, 15, 15 + 15])
def test_a_word_written_on_a_guard_is_a_stray(offset: int) -> None:
    argument = buffer()
    argument.base[argument.start + offset] = 7
    writes, accesses = argument.inspect()
    assert writes == []
    assert [(stray.buffer, stray.kind) for stray in accesses] == [("x", "store")]
    assert f"first at {offset:+d}" in accesses[0].where and accesses[0].where.startswith("1 words outside 'x'")


def test_guards_reach_a_cache_line_to_both_sides() -> None:
    argument = buffer()
    assert argument.start * 4 >= GUARD
    assert (argument.base.size - argument.start - 15) * 4 >= GUARD


@pytest.mark.parametrize("layout", [CONTIGUOUS, Layout(pad=3, offset=5), Layout(step=2), Layout(reach=30)])
def test_no_guard_is_of_the_storage(layout: Layout) -> None:
    argument = buffer(layout, "float32", DIMS)
    storage = argument.tensor.untyped_storage()
    assert storage.data_ptr() + storage.nbytes() == address_range(argument.tensor)[1]
    assert argument.tensor[-1, -1] == argument.tensor.clone()[-1, -1]


@pytest.mark.parametrize(("layout", "gap"), [(Layout(pad=3), 5), (Layout(step=2), 1), (Layout(pad=2, offset=5), 6)])
def test_a_word_written_in_the_gaps_of_a_layout_is_a_stray(layout: Layout, gap: int) -> None:
    argument = buffer(layout)
    argument.base[argument.start + gap] = 7
    writes, accesses = argument.inspect()
    assert writes == [] and len(accesses) == 1


def test_the_bits_of_signed_zeros_and_nans_count_as_writes() -> None:
    argument = allocate_buffer("x", Argument(("N",), "float32", recipe("zeros")), {"N": 2}, "cpu")
    argument.tensor[1] = -0.0
    assert argument.inspect()[0][0].first == (1,)


def test_words_can_replace_a_cases_values() -> None:
    words = np.arange(15, dtype=np.uint32).reshape(3, 5)
    argument = allocate_buffer("x", Argument(SHAPE, "int32", recipe("zeros")), DIMS, "cpu", words)
    assert argument.tensor.tolist() == words.tolist() and argument.inspect() == ([], [])


@pytest.mark.parametrize("dims", [{"M": 0, "N": 5}, {"M": 3, "N": 0}, {"M": 0, "N": 0}])
@pytest.mark.parametrize("layout", [CONTIGUOUS, Layout(pad=3), Layout(expand=(0,))])
def test_empty_tensors_have_guards_too(layout: Layout, dims: dict[str, int]) -> None:
    argument = buffer(layout, dims=dims)
    assert argument.tensor.numel() == 0 and argument.inspect() == ([], [])
    argument.base[argument.start - 1] = 7
    assert len(argument.inspect()[1]) == 1


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_huge_layout_takes_little_memory_and_still_sees_writes() -> None:
    before = resident()
    argument = buffer(Layout(reach=30), "float32", {"M": 3, "N": 64})
    assert argument.tensor.stride() == (1 << 30, 1)
    argument.tensor[2, 63] = 1.0
    writes, accesses = argument.inspect()
    assert resident() - before < 64 << 20
    assert [write.first for write in writes] == [(2, 63)] and accesses == []


def test_a_huge_layout_is_compared_element_by_element() -> None:
    assert buffer(Layout(reach=30), "bfloat16", {"M": 4, "N": 8}).inspect() == ([], [])


@pytest.mark.parametrize("dtype", [name for name in sorted(POISON) if TORCH_DTYPES[name].itemsize > 1])
def test_an_element_that_was_never_written_is_seen(dtype: str) -> None:
    tensor = torch.empty(3, 4, dtype=TORCH_DTYPES[dtype])
    fill_poison(tensor)
    assert find_poison(tensor) == (0, 0)
    tensor.zero_()
    assert find_poison(tensor) is None
    fill_poison(tensor[2])
    assert find_poison(tensor) == (2, 0)


def test_an_ordinary_nan_is_not_poison() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        assert find_poison(torch.full((4,), float("nan"), dtype=dtype)) is None


def test_arithmetic_on_poison_leaves_none() -> None:
    tensor = torch.empty(8)
    fill_poison(tensor)
    assert find_poison(tensor + 0.0) is None
    assert find_poison(tensor.clone()) == (0,)


def test_allocations_hold_poison_where_torch_leaves_them_unfilled() -> None:
    with LauncherAllocations():
        tensors = [
            torch.empty(4),
            torch.empty_like(torch.zeros(3)),
            torch.zeros(3).new_empty(2),
            torch.empty_strided((2, 3), (3, 1)),
            torch.empty_permuted((2, 3), (1, 0)),
            torch.empty_strided((2, 3), (8, 2)),
        ]
    assert [find_poison(tensor) for tensor in tensors] == [(0,), (0,), (0,), (0, 0), (0, 0), (0, 0)]
    assert bool(tensors[-1].as_strided((13,), (1,)).isnan().all())


def test_gaps_between_elements_are_filled_without_poison() -> None:
    with LauncherAllocations(), fill_without_poison(2.5):
        tensor = torch.empty_strided((2, 3), (8, 2))
    assert tensor.as_strided((13,), (1,)).tolist() == [2.5] * 13


def test_allocations_keep_what_torch_fills_them_with() -> None:
    with LauncherAllocations() as allocations:
        tensors = [
            torch.zeros(3),
            torch.ones(2, dtype=torch.int32),
            torch.full((2, 2), 7.5),
            torch.zeros_like(torch.ones(2)),
        ]
    assert [tensor.tolist() for tensor in tensors] == [[0, 0, 0], [1, 1], [[7.5, 7.5], [7.5, 7.5]], [0, 0]]
    assert allocations.outside_writes({}) == []


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(4), lambda: torch.zeros(4), lambda: torch.empty(4, dtype=torch.float16)]
)
@pytest.mark.parametrize("offset", [-1, 4])
def test_a_write_beside_an_allocation_is_a_stray(allocate: object, offset: int) -> None:
    assert callable(allocate)
    with LauncherAllocations() as allocations:
        tensor = allocate()
    ctypes.memset(tensor.data_ptr() + tensor.element_size() * offset, 0x3F, tensor.element_size())
    accesses = allocations.outside_writes({tensor.data_ptr(): "dx"})
    assert [stray.buffer for stray in accesses] == ["dx"]
    assert f"first at element {offset:+d}" in accesses[0].where
    assert allocations.outside_writes({})[0].buffer == "a buffer of the launcher"


def add_into(given: torch.Tensor) -> torch.Tensor:
    torch.add(torch.full((6,), 3.0), 1, out=given)
    return given


@pytest.mark.parametrize(
    ("grow", "values"),
    [
        (lambda: torch.empty(0).resize_(6), [None] * 6),
        (lambda: torch.empty(0).resize_(2).fill_(1).resize_(2, 3).view(-1), [1, 1, *[None] * 4]),
        (lambda: torch.empty(0).resize_as_(torch.ones(6)), [None] * 6),
        (lambda: torch.zeros(0, 3).resize_(6), [None] * 6),
        (lambda: add_into(torch.empty(0)), [4] * 6),
    ],
    ids=["from nothing", "from a filled one", "as another", "from zeros", "out="],
)
def test_what_is_new_of_a_tensor_that_grows_is_poison(
    grow: Callable[[], torch.Tensor], values: list[float | None]
) -> None:
    with LauncherAllocations():
        tensor = grow()
    known = [value for value in values if value is not None]
    assert tensor[: len(known)].tolist() == known
    assert [find_poison(one) for one in tensor] == [() if value is None else None for value in values]


def test_a_tensor_that_grows_keeps_its_views_and_grows_again_in_a_later_call() -> None:
    with LauncherAllocations():
        tensor = torch.empty(0).resize_(4).zero_()
        view = tensor[2:]
    with LauncherAllocations():
        tensor.resize_(100)
    view += 5
    assert tensor[:4].tolist() == [0, 0, 5, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_the_storage_of_an_allocation_has_its_elements_alone(dtype: torch.dtype) -> None:
    with LauncherAllocations() as allocations:
        tensor = torch.empty(3, 5, dtype=dtype)
    assert len(allocations.guarded) == 1
    assert tensor.storage_offset() == 0 and tensor.untyped_storage().data_ptr() == tensor.data_ptr()
    assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_views_from_a_storage_offset_are_of_the_allocation() -> None:
    """torch's own gradient of as_strided makes them."""
    x = torch.arange(12.0).requires_grad_()
    with LauncherAllocations():
        (gradient,) = torch.autograd.grad(torch.as_strided(x, (2, 2), (1, 2), 1).sum(), x)
    assert gradient.tolist() == [0, 1, 1, 1, 1, *[0] * 7]


def test_allocations_end_with_the_run() -> None:
    with LauncherAllocations() as allocations:
        torch.empty(4)
    torch.empty(4)
    assert len(allocations.guarded) == 1
