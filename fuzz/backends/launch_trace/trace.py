"""Runs replicas of a call by repeating the launches that one run recorded, without the launcher.

A launcher costs a hundred times what its kernels cost on small tensors. Where it reads no values, what it does depends
on shapes, dtypes, layouts and options alone, which replicas share: then its launches can be repeated with the addresses
of each replica's own memory, and so can the operations of torch between them. Replicas whose memory shows anything
wrong are marked, for a run of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fuzz.backends.base import RecordedLaunch, RunOrder, Session
from fuzz.backends.execute import CompletedCall
from fuzz.backends.guarded_memory import DTYPE_NAMES, WORD_DTYPES, Buffer, elements, find_poisoned
from fuzz.backends.launch_trace.replica_memory import Region, RegionRows, ReplicaMemory, RowLayout, allocate_zeros
from fuzz.backends.launch_trace.torch_operations import (
    Addresses,
    NotRepeatable,
    OtherNumbers,
    Rows,
    TensorPlace,
    TracedOperation,
    find_span,
    is_address,
    locate,
    trace_operation,
)
from fuzz.backends.launcher_allocations import Allocation, TorchOperation
from fuzz.backends.poison import POISON

FEWEST_AS_FIRST = 2
"""Of so many replicas at least one must get the numbers in Python that the first one gets."""
Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class TraceResult:
    """Outputs (replicas, *shape) by name, and by replica, bool (replicas), whether its memory is as it should be."""

    outputs: Mapping[str, torch.Tensor]
    intact: np.ndarray

    def split(self, counts: Sequence[int]) -> list[TraceResult]:
        """The results of the first replicas, of those after them, and so on: of so many each."""
        parts = {name: torch.split(output, list(counts)) for name, output in self.outputs.items()}
        intact = np.split(self.intact, np.cumsum(counts)[:-1])
        return [TraceResult({name: parts[name][place] for name in parts}, one) for place, one in enumerate(intact)]

    def scatter(self, rows: np.ndarray, count: int) -> TraceResult:
        """These results as those of some replicas among `count`, of which the others are not intact."""
        intact = np.zeros(count, dtype=bool)
        intact[rows] = self.intact
        outputs = {name: output.new_zeros((count, *output.shape[1:])) for name, output in self.outputs.items()}
        for name, output in outputs.items():
            output[torch.from_numpy(rows).to(output.device)] = self.outputs[name]
        return TraceResult(outputs, intact)


@dataclass(frozen=True)
class TracedLaunch:
    """A launch with the regions that its addresses point to.

    `addresses` are pairs of a slot and the region that its address lies in, `shadows` triples of a slot, the shadow
    whose distance it holds and the region of that shadow.
    """

    launch: RecordedLaunch
    addresses: tuple[tuple[int, int], ...]
    shadows: tuple[tuple[int, int, int], ...]

    def repeat(
        self, regions: Sequence[Rows], shadows: Sequence[RegionRows], orders: Sequence[RunOrder]
    ) -> np.ndarray | None:
        """Launches for every replica; returns, uint8 (replicas), which had something to report, or None."""
        offsets = {slot: regions[number].shifts for slot, number in self.addresses}
        offsets |= {slot: shadows[shadow].shifts - regions[number].shifts for slot, shadow, number in self.shadows}
        return self.launch.repeat(regions[0].count, offsets, orders)


@dataclass(frozen=True)
class LaunchTrace:
    """What one completed call did, in order. It keeps the call's memory alive, so that its addresses stay its own."""

    call: CompletedCall
    steps: tuple[TracedLaunch | TracedOperation, ...]
    outputs: Mapping[str, TensorPlace]

    def replay(self, values: Values, orders: Sequence[RunOrder] = ()) -> TraceResult:
        """Runs replicas, step by step; `values` are those of each tensor, (replicas, *stored shape).

        `orders` gives the order of each replica; where it is empty all have the usual one. Raises NotRepeatable.
        """
        count = len(next(iter(values.values())))
        rows = np.arange(count)
        while FEWEST_AS_FIRST * len(rows) >= count:
            some = {name: part[rows] for name, part in values.items()} if len(rows) < count else values
            try:
                result = self._replay(some, [orders[row] for row in rows.tolist()] if orders else ())
            except OtherNumbers as found:
                rows = rows[found.same]
            else:
                return result if len(rows) == count else result.scatter(rows, count)
        raise NotRepeatable

    def _replay(self, values: Values, orders: Sequence[RunOrder]) -> TraceResult:
        count = len(next(iter(values.values())))
        memory = ReplicaMemory(self.layout, count)
        for region, (name, buffer) in zip(memory.regions, self.call.buffers.items(), strict=False):
            write_values(region, buffer, values[name])
        before = memory.words.clone()
        shadows = [allocate_zeros(len(one.shadow), count, one.shadow.ctypes.data) for one in self.call.session.shadowed]
        regions: list[Rows] = [*memory.regions]
        reports = []
        with torch.no_grad():
            for step in self.steps:
                if isinstance(step, TracedLaunch):
                    reports.append(step.repeat(regions, shadows, orders))
                else:
                    step.repeat(regions)
        damaged = memory.has_changed(before)
        outputs = {name: place.of(regions) for name, place in self.outputs.items()}
        for output in outputs.values():
            damaged |= has_poison(output)
        intact = ~np.asarray(damaged.cpu().numpy())
        for report in reports:
            intact = intact if report is None else intact & (report == 0)
        return TraceResult(outputs, intact)

    @cached_property
    def layout(self) -> RowLayout:
        """The memory of a replica: its arguments, then the launcher's allocations."""
        writable = self.call.writable
        regions = [argument_region(buffer, name in writable) for name, buffer in self.call.buffers.items()]
        regions += [allocation_region(allocation) for allocation in self.call.allocations.guarded]
        return RowLayout(regions, next(iter(self.call.buffers.values())).device_base.device)


def record_trace(call: CompletedCall) -> LaunchTrace | None:
    """The trace of a completed call; None where repeating its steps would not do all that the launcher did."""
    session, operations = call.session, call.allocations.operations
    huge = any(buffer.pristine is None for buffer in call.buffers.values())
    if operations is None or not (session.launches or operations) or huge:
        return None
    bases = [buffer.device_base for buffer in call.buffers.values()]
    bases += [allocation.base for allocation in call.allocations.guarded]
    spans = [(base.data_ptr(), base.data_ptr() + base.nbytes) for base in bases]
    steps = trace_steps(session, operations, spans)
    outputs = {name: locate_output(output, spans) for name, output in call.outputs.items()}
    if steps is None or None in outputs.values():
        return None
    return LaunchTrace(call, steps, {name: place for name, place in outputs.items() if place})


def trace_steps(
    session: Session, operations: Sequence[TorchOperation], spans: list[Addresses]
) -> tuple[TracedLaunch | TracedOperation, ...] | None:
    """The launches and operations in the order in which they ran, None where one cannot be repeated.

    Adds the memory that operations allocated to the spans.
    """
    shadows = [(memory.start, memory.end) for memory in session.shadowed]
    steps: list[TracedLaunch | TracedOperation | None] = []
    done = 0
    for operation in operations:
        steps += [trace_launch(launch, spans, shadows) for launch in session.launches[done : operation.launches]]
        steps.append(trace_operation(operation, spans))
        done = operation.launches
    steps += [trace_launch(launch, spans, shadows) for launch in session.launches[done:]]
    traced = [step for step in steps if step is not None]
    return tuple(traced) if len(traced) == len(steps) else None


def trace_launch(
    launch: RecordedLaunch, spans: Sequence[Addresses], shadows: Sequence[Addresses]
) -> TracedLaunch | None:
    """The launch with the regions of its addresses; None where one points elsewhere, or it cannot be repeated."""
    if launch.pointers is None or any(is_address(number, spans) for number in launch.numbers):
        return None
    addresses, shadow_slots = [], []
    for pointer in launch.pointers:
        number = find_span(pointer.start, pointer.end, spans)
        if number is None:
            return None
        addresses.append((pointer.slot, number))
        if pointer.shadow:
            shadow = find_span(pointer.start, pointer.end, shadows)
            if shadow is None:
                return None
            shadow_slots.append((pointer.shadow, shadow, number))
    return TracedLaunch(launch, tuple(addresses), tuple(shadow_slots))


def locate_output(output: torch.Tensor, spans: Sequence[Addresses]) -> TensorPlace | None:
    """Where an output lies; None where that is in none of the spans."""
    if output.dtype not in DTYPE_NAMES or not spans:
        return None
    if not output.numel():
        return TensorPlace(0, 0, tuple(output.shape), output.stride(), output.dtype)
    return locate(output, spans)


def argument_region(buffer: Buffer, writable: bool) -> Region:
    """The region of an argument, of which nothing may change but the elements of one that is written in place.

    Its values are written into it later.
    """
    base = buffer.device_base
    protected = np.ones(base.numel(), dtype=bool)
    if writable:
        elements(protected, buffer.stored, buffer.strides, buffer.start)[...] = False
    return Region(base.data_ptr(), poison_bytes(base), protected.repeat(base.element_size()))


def write_values(rows: RegionRows, buffer: Buffer, values: torch.Tensor) -> None:
    """Writes each replica's values into its argument."""
    word = WORD_DTYPES[buffer.device_base.element_size()]
    start = buffer.start * buffer.device_base.element_size()
    rows.view(buffer.stored, buffer.strides, start, word).copy_(values.view(word))


def allocation_region(allocation: Allocation) -> Region:
    """The region of a tensor that the launcher allocated, of which the guards may not change."""
    base, size = allocation.base, allocation.base.element_size()
    inside = slice(allocation.start * size, (allocation.start + allocation.length) * size)
    initial, protected = poison_bytes(base), np.ones(base.nbytes, dtype=bool)
    protected[inside] = False
    if allocation.filled is not None and allocation.length:
        storage = torch.as_strided(allocation.filled, (allocation.length,), (1,), 0)
        initial[inside] = storage.view(WORD_DTYPES[size]).cpu().numpy().view(np.uint8)
    return Region(base.data_ptr(), initial, protected)


def poison_bytes(base: torch.Tensor) -> np.ndarray:
    """As many bytes of poison, uint8, as a tensor has."""
    word = POISON[DTYPE_NAMES[base.dtype]].to_bytes(base.element_size(), sys.byteorder)
    return np.frombuffer(word * base.numel(), dtype=np.uint8).copy()


def has_poison(output: torch.Tensor) -> torch.Tensor:
    """By replica, bool (replicas), whether an element of an output, (replicas, *shape), still holds poison.

    Eight-bit types have no word to spare.
    """
    matches = find_poisoned(output)
    if matches is None:
        return torch.zeros(len(output), dtype=torch.bool, device=output.device)
    return matches.reshape(len(output), -1).any(1)


def matches_single_run(result: TraceResult, row: int, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether one replica has the very bits that a run of its own gave."""
    pairs = ((result.outputs[name][row], output) for name, output in outputs.items())
    return bool(result.intact[row]) and all(torch.equal(as_bytes(got), as_bytes(want)) for got, want in pairs)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A flat copy of a tensor's elements as uint8."""
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)
