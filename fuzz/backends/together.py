"""Together: replicas of a call, run by repeating the launches that one run made, without the launcher.

A launcher costs a hundred times what its kernels cost on small tensors. Where it only allocates memory, looks at it in
other shapes and launches kernels, what it does depends on shapes, dtypes, layouts and options alone, which replicas
share: then its launches can be repeated with the addresses of each replica's own memory. Replicas of which anything is
wrong with memory are told apart, for a run of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fuzz.backends.allocations import Allocation
from fuzz.backends.execute import Ran
from fuzz.backends.memory import NAMES, Buffer
from fuzz.backends.order import permutation
from fuzz.backends.poison import POISON
from fuzz.backends.rows import Rows

if TYPE_CHECKING:
    from fuzz.backends.cpu import Launched

ORDER, LIMIT = 3, 4
"""Slots of a launch's packed arguments: the address of the programs' order, and how many violations to keep."""
SHADOW = 2
"""How many slots behind an address the distance of its shadow stands."""
Words = Mapping[str, np.ndarray]
Addresses = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where an output lies: in which memory, at which byte, with which shape, strides in elements, and dtype."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Played:
    """Outputs (replicas, *shape) by name, and by replica whether its memory is as it should be."""

    outputs: Mapping[str, torch.Tensor]
    intact: np.ndarray


@dataclass(frozen=True)
class Step:
    """A launch, and by slot the memory, and by slot the shadow, whose addresses each replica has of its own."""

    launched: Launched
    addresses: tuple[tuple[int, int], ...]
    shadows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Recording:
    """The launches of one run. It keeps the run's memory, so that its addresses stay its own."""

    ran: Ran
    steps: tuple[Step, ...]
    places: Mapping[str, Place]

    def play(self, words: Words, order: int | None = None) -> Played:
        """Runs the replicas whose words, (replicas, *stored shape) by tensor, these are, one launch after the other.

        `order` permutes the order of programs.
        """
        count = len(next(iter(words.values())))
        arguments = [argument_rows(buffer, words[name]) for name, buffer in self.ran.buffers.items()]
        before = [rows.words.copy() for rows in arguments]
        scratch = [scratch_rows(allocation, count) for allocation in self.ran.allocations.made]
        shadows = [Rows(count, len(one.shadow), np.uint8, one.shadow.ctypes.data) for one in self.ran.session.watched]
        for one in shadows:
            one.words[...] = 0
        memory = [*arguments, *scratch]
        reported = np.zeros(count, dtype=np.uint8)
        for step in self.steps:
            launch(step, memory, shadows, order, reported)
        wrong = reported > 0
        for rows, pristine in zip(arguments, before, strict=True):
            if not np.array_equal(rows.words, pristine):
                wrong |= (rows.words != pristine).any(1)
        for rows, allocation in zip(scratch, self.ran.allocations.made, strict=True):
            wrong |= strays(rows, allocation)
        outputs = {name: placed(memory[place.memory], place) for name, place in self.places.items()}
        for output in outputs.values():
            wrong |= unwritten(output)
        return Played(outputs, ~wrong)


def recorded(ran: Ran) -> Recording | None:
    """The recording of a run; None where repeating its launches would not do all that the launcher did."""
    session = ran.session
    if session.launched is None or not session.launched or ran.allocations.computed:
        return None
    if any(buffer.pristine is None for buffer in ran.buffers.values()):
        return None
    spans = [span(buffer.base) for buffer in ran.buffers.values()]
    spans += [span(allocation.base.view(torch.uint8).numpy()) for allocation in ran.allocations.made]
    shadows = [(one.start, one.end) for one in session.watched]
    steps = [step(launched, spans, shadows) for launched in session.launched]
    places = {name: place(output, spans) for name, output in ran.outputs.items()}
    if any(one is None for one in (*steps, *places.values())):
        return None
    return Recording(ran, tuple(one for one in steps if one), {name: one for name, one in places.items() if one})


def step(launched: Launched, memory: Sequence[Addresses], shadows: Sequence[Addresses]) -> Step | None:
    """The launch with what its addresses point to; None where one points elsewhere."""
    slots = np.frombuffer(launched.packed, dtype=np.int64)
    addresses, moved = [], []
    for slot in launched.pointers:
        address, length = int(slots[slot]), int(slots[slot + 1])
        if not length:
            continue
        number = holding(address, address + length, memory)
        if number is None:
            return None
        addresses.append((slot, number))
        if launched.watched and slots[slot + SHADOW]:
            shadow = holding(address, address + length, shadows)
            if shadow is None:
                return None
            moved.append((slot + SHADOW, shadow, number))
    return Step(launched, tuple(addresses), tuple(moved))


def place(output: torch.Tensor, memory: Sequence[Addresses]) -> Place | None:
    """Where an output lies; None where that is not in this memory."""
    start, reach = output.data_ptr(), sum((n - 1) * s for n, s in zip(output.shape, output.stride(), strict=True))
    if not output.numel():
        return Place(0, 0, tuple(output.shape), tuple(output.stride()), output.dtype) if memory else None
    number = holding(start, start + (reach + 1) * output.element_size(), memory)
    if number is None or output.dtype not in NAMES:
        return None
    return Place(number, start - memory[number][0], tuple(output.shape), tuple(output.stride()), output.dtype)


def holding(start: int, end: int, memory: Sequence[Addresses]) -> int | None:
    """The number of the memory that a range of addresses lies in."""
    for number, (low, high) in enumerate(memory):
        if low <= start and end <= high:
            return number
    return None


def span(words: np.ndarray) -> Addresses:
    return words.ctypes.data, words.ctypes.data + words.nbytes


def argument_rows(buffer: Buffer, words: np.ndarray) -> Rows:
    """An argument of every replica, each in a row like the buffer of the recorded run."""
    rows = Rows(len(words), len(buffer.base), buffer.base.dtype, buffer.base.ctypes.data)
    rows.words[...] = POISON[buffer.dtype]
    strides = tuple(stride * buffer.base.itemsize for stride in buffer.strides)
    view = rows.words[:, buffer.start :]
    np.lib.stride_tricks.as_strided(view, (len(words), *buffer.stored), (rows.stride, *strides))[...] = words
    return rows


def scratch_rows(allocation: Allocation, count: int) -> Rows:
    """What the launcher allocated, for every replica."""
    base = allocation.base.view(torch.uint8).numpy().view(f"u{allocation.base.element_size()}")
    rows = Rows(count, len(base), base.dtype, base.ctypes.data)
    rows.words[...] = POISON[NAMES[allocation.base.dtype]]
    if allocation.filled is not None and allocation.length:
        storage = torch.as_strided(allocation.filled, (allocation.length,), (1,), 0)
        rows.words[:, inside(allocation)] = storage.view(torch.uint8).numpy().view(base.dtype)
    return rows


def inside(allocation: Allocation) -> slice:
    return slice(allocation.start, allocation.start + allocation.length)


def launch(
    step: Step, memory: Sequence[Rows], shadows: Sequence[Rows], order: int | None, reported: np.ndarray
) -> None:
    """One launch for every replica; `reported` is set for those of which there is something to report."""
    slots = np.frombuffer(step.launched.packed, dtype=np.int64)
    packed = np.repeat(slots[None], len(reported), 0)
    programs = None if order is None or step.launched.programs < 2 else permutation(order, step.launched.programs)
    packed[:, ORDER], packed[:, LIMIT] = 0 if programs is None else programs.ctypes.data, 1
    for slot, number in step.addresses:
        packed[:, slot] += memory[number].moved
    for slot, shadow, number in step.shadows:
        packed[:, slot] += shadows[shadow].moved - memory[number].moved
    step.launched.function.together(packed.ctypes.data, packed.shape[1], len(packed), reported.ctypes.data)


def strays(rows: Rows, allocation: Allocation) -> np.ndarray:
    """By replica whether a guard of an allocation changed."""
    poison = POISON[NAMES[allocation.base.dtype]]
    before, after = rows.words[:, : allocation.start], rows.words[:, inside(allocation).stop :]
    changed: np.ndarray = (before != poison).any(1) | (after != poison).any(1)
    return changed


def placed(rows: Rows, place: Place) -> torch.Tensor:
    """An output of every replica."""
    whole = torch.from_numpy(rows.data).view(place.dtype)
    size = place.dtype.itemsize
    strides = (rows.stride // size, *place.strides)
    return torch.as_strided(whole, (len(rows.words), *place.shape), strides, (rows.start + place.offset) // size)


def unwritten(output: torch.Tensor) -> np.ndarray:
    """By replica whether an element of an output still holds poison. Eight-bit types cannot be told."""
    size = output.element_size()
    word = POISON[NAMES[output.dtype]]
    if size == 1 or not output.numel():
        return np.zeros(len(output), dtype=bool)
    signed = word - (1 << 8 * size) if word >> (8 * size - 1) else word
    held = output.view(getattr(torch, f"int{8 * size}")) == signed
    return np.asarray(held.reshape(len(output), -1).any(1).numpy())


def alike(played: Played, row: int, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether one replica has the very bits that a run of its own gave."""
    pairs = ((played.outputs[name][row], output) for name, output in outputs.items())
    return bool(played.intact[row]) and all(torch.equal(octets(one), octets(other)) for one, other in pairs)


def octets(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)
