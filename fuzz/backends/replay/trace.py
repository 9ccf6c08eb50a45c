"""Together: replicas of a call, run by repeating the launches that one run made, without the launcher.

A launcher costs a hundred times what its kernels cost on small tensors. Where it only allocates memory, looks at it in
other shapes and launches kernels, what it does depends on shapes, dtypes, layouts and options alone, which replicas
share: then its launches can be repeated with the addresses of each replica's own memory. Replicas of which anything is
wrong with memory are told apart, for a run of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fuzz.backends.allocations import Allocation
from fuzz.backends.base import Launched
from fuzz.backends.execute import Ran
from fuzz.backends.memory import NAMES, WORDS, Buffer, extent, signed_poison
from fuzz.backends.poison import POISON
from fuzz.backends.replay.batch_memory import Arena, Form, Part, Rows, zeroed

Values = Mapping[str, torch.Tensor]
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
    """A launch; by slot the memory that its address lies in, and by slot the shadow and the memory that that is of."""

    launched: Launched
    addresses: tuple[tuple[int, int], ...]
    shadows: tuple[tuple[int, int, int], ...]

    def repeat(self, memory: Sequence[Rows], shadows: Sequence[Rows], order: int | None) -> np.ndarray | None:
        """The launch for every replica; of which there is something to report, or None."""
        moved = {slot: memory[number].moved for slot, number in self.addresses}
        moved |= {slot: shadows[shadow].moved - memory[number].moved for slot, shadow, number in self.shadows}
        return self.launched.repeat(memory[0].count, moved, order)


@dataclass(frozen=True)
class Recording:
    """The launches of one run. It keeps the run's memory, so that its addresses stay its own."""

    ran: Ran
    steps: tuple[Step, ...]
    places: Mapping[str, Place]

    def play(self, values: Values, order: int | None = None) -> Played:
        """Runs the replicas whose values, (replicas, *stored shape) by tensor, these are, one launch after the other.

        `order` permutes the order of programs, where the backend can.
        """
        count = len(next(iter(values.values())))
        arena = Arena(self.form, count)
        for part, (name, buffer) in zip(arena.parts, self.ran.buffers.items(), strict=False):
            put(part, buffer, values[name])
        before = arena.words.clone()
        shadows = [zeroed(len(one.shadow), count, one.shadow.ctypes.data) for one in self.ran.session.watched]
        reports = [step.repeat(arena.parts, shadows, order) for step in self.steps]
        wrong = arena.changed(before)
        outputs = {name: arena.parts[one.memory].seen(one.shape, one.strides, one.offset, one.dtype)
                   for name, one in self.places.items()}  # fmt: skip
        for output in outputs.values():
            wrong |= unwritten(output)
        harmed = np.asarray(wrong.cpu().numpy())
        for reported in reports:
            harmed = harmed if reported is None else harmed | (reported > 0)
        return Played(outputs, ~harmed)

    @cached_property
    def form(self) -> Form:
        """The memory of a replica: its arguments, then what the launcher allocated."""
        parts = [argument(buffer) for buffer in self.ran.buffers.values()]
        parts += [scratch(allocation) for allocation in self.ran.allocations.made]
        return Form(parts, next(iter(self.ran.buffers.values())).device_base.device)


def recorded(ran: Ran) -> Recording | None:
    """The recording of a run; None where repeating its launches would not do all that the launcher did."""
    session = ran.session
    if not session.launched or ran.allocations.computed or any(one.pristine is None for one in ran.buffers.values()):
        return None
    bases = [buffer.device_base for buffer in ran.buffers.values()]
    bases += [allocation.base for allocation in ran.allocations.made]
    spans = [(base.data_ptr(), base.data_ptr() + base.nbytes) for base in bases]
    shadows = [(one.start, one.end) for one in session.watched]
    steps = [step(launched, spans, shadows) for launched in session.launched]
    places = {name: place(output, spans) for name, output in ran.outputs.items()}
    if any(one is None for one in (*steps, *places.values())):
        return None
    return Recording(ran, tuple(one for one in steps if one), {name: one for name, one in places.items() if one})


def step(launched: Launched, memory: Sequence[Addresses], shadows: Sequence[Addresses]) -> Step | None:
    """The launch with what its addresses point to; None where one points elsewhere, or it cannot be repeated."""
    if launched.pointers is None:
        return None
    addresses, moved = [], []
    for pointer in launched.pointers:
        number = holding(pointer.start, pointer.end, memory)
        if number is None:
            return None
        addresses.append((pointer.slot, number))
        if pointer.shadow:
            shadow = holding(pointer.start, pointer.end, shadows)
            if shadow is None:
                return None
            moved.append((pointer.shadow, shadow, number))
    return Step(launched, tuple(addresses), tuple(moved))


def place(output: torch.Tensor, memory: Sequence[Addresses]) -> Place | None:
    """Where an output lies; None where that is not in this memory."""
    shape, strides = tuple(output.shape), tuple(output.stride())
    if output.dtype not in NAMES or not memory:
        return None
    if not output.numel():
        return Place(0, 0, shape, strides, output.dtype)
    start, end = extent(output)
    number = holding(start, end, memory)
    return None if number is None else Place(number, start - memory[number][0], shape, strides, output.dtype)


def holding(start: int, end: int, memory: Sequence[Addresses]) -> int | None:
    """The number of the memory that a range of addresses lies in."""
    for number, (low, high) in enumerate(memory):
        if low <= start and end <= high:
            return number
    return None


def argument(buffer: Buffer) -> Part:
    """An argument, of which nothing may change. Its values are put into it later."""
    base = buffer.device_base
    return Part(base.data_ptr(), poisoned(base), np.ones(base.nbytes, dtype=bool))


def put(rows: Rows, buffer: Buffer, values: torch.Tensor) -> None:
    """Each replica's values in its argument."""
    word = WORDS[buffer.device_base.element_size()]
    start = buffer.start * buffer.device_base.element_size()
    rows.seen(buffer.stored, buffer.strides, start, word).copy_(values.view(word))


def scratch(allocation: Allocation) -> Part:
    """What the launcher allocated, of which the guards may not change."""
    base, size = allocation.base, allocation.base.element_size()
    inside = slice(allocation.start * size, (allocation.start + allocation.length) * size)
    held, kept = poisoned(base), np.ones(base.nbytes, dtype=bool)
    kept[inside] = False
    if allocation.filled is not None and allocation.length:
        storage = torch.as_strided(allocation.filled, (allocation.length,), (1,), 0)
        held[inside] = storage.view(WORDS[size]).cpu().numpy().view(np.uint8)
    return Part(base.data_ptr(), held, kept)


def poisoned(base: torch.Tensor) -> np.ndarray:
    """As many bytes of poison as memory has."""
    word = POISON[NAMES[base.dtype]].to_bytes(base.element_size(), sys.byteorder)
    return np.frombuffer(word * base.numel(), dtype=np.uint8).copy()


def unwritten(output: torch.Tensor) -> torch.Tensor:
    """By replica whether an element of an output still holds poison. Eight-bit types cannot be told."""
    size, count = output.element_size(), len(output)
    if size == 1 or not output.numel():
        return torch.zeros(count, dtype=torch.bool, device=output.device)
    held = output.view(getattr(torch, f"int{8 * size}")) == signed_poison(output.dtype)
    return held.reshape(count, -1).any(1)


def alike(played: Played, row: int, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether one replica has the very bits that a run of its own gave."""
    pairs = ((played.outputs[name][row], output) for name, output in outputs.items())
    return bool(played.intact[row]) and all(torch.equal(octets(one), octets(other)) for one, other in pairs)


def octets(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)
