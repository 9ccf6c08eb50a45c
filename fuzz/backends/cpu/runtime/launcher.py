"""Calls the compiled C with the arguments of `kernel[grid](...)`, as fast as Python allows, and reads its reports."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from math import prod
from os.path import basename
from pathlib import Path
from struct import Struct
from typing import Any

import torch
from triton.runtime.jit import TensorWrapper

from fuzz.backends.cpu.analysis.compared_constants import constants
from fuzz.backends.cpu.analysis.dataflow import MEMORY
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.runtime.counters import counters
from fuzz.backends.cpu.runtime.cpu_launch import CpuLaunch
from fuzz.backends.cpu.runtime.gpu_code import check_grid
from fuzz.backends.cpu.runtime.kernel_function import load_kernel
from fuzz.backends.cpu.runtime.known_memory import known_memory
from fuzz.backends.cpu.runtime.launch_code import launch_code
from fuzz.backends.cpu.runtime.observation import Observation, current_observation
from fuzz.backends.cpu.runtime.shadow import UNTRACKED
from fuzz.backends.cpu.runtime.violations import (
    PROBLEMS,
    DeviceAssertion,
    Failure,
    MemoryFault,
    OutOfBounds,
    Program,
    Violation,
)
from fuzz.backends.cpu.translate import translate
from fuzz.backends.reached_functions import find_functions
from fuzz.backends.triton_host.knobs import knobs

Extent = tuple[int, int, int]
"""Of an argument: its lowest address, the bytes from there to its end, and those of them before its own address."""
Extents = dict[int, Extent]
Grid = tuple[int, int, int]
Pack = Callable[[int, int], bytes]
RECORD = Struct("6q")


class ReachesBefore(Exception):
    """Elements of an argument lie before its address, as where a stride is below 0."""

    def __init__(self, extent: Extent) -> None:
        super().__init__(extent)
        self.extent = extent


def span(argument: Any) -> tuple[int, int]:
    """Address and length in bytes of what a kernel may touch of a tensor, or of what a launcher passes in its place.

    It reaches from the first element to the end of the memory, or to the last element where `knobs.bounds` is `view`.
    Raises ReachesBefore where the first element in memory is not the one at the address.
    """
    if argument is None:
        return 0, 0
    if not getattr(argument, "is_cpu", True):
        raise ValueError(f"the cpu backend is active, but an argument is on {argument.device}")
    address: int = argument.data_ptr()
    if isinstance(argument, TensorWrapper):
        argument = argument.base
    if not hasattr(argument, "stride"):
        return address, known_room(address)
    if 0 in argument.shape:
        return address, 0
    if knobs.bounds == "view" or not isinstance(argument, torch.Tensor):
        before, length = view_lengths(argument)
        if before:
            raise ReachesBefore(extent_before(argument, address - before, address, address + length))
        if knobs.bounds == "view" or not hasattr(argument, "untyped_storage"):
            return address, length
    storage = argument.untyped_storage()
    return address, storage.data_ptr() + storage.nbytes() - address


def extent_before(argument: Any, lowest: int, address: int, end: int) -> Extent:
    """The extent of what says to have elements from `lowest` to `end`: as much of it as its storage holds, or, where
    `knobs.bounds` is `view` or it names no storage, all of it."""
    if knobs.bounds != "view" and hasattr(argument, "untyped_storage"):
        storage = argument.untyped_storage()
        start = storage.data_ptr()
        lowest, end = max(lowest, start), start + storage.nbytes()
    return lowest, end - lowest, address - lowest


def extent(argument: Any) -> Extent:
    """What `span` finds, also of arguments with elements before their address."""
    try:
        return *span(argument), 0
    except ReachesBefore as found:
        return found.extent


def view_lengths(tensor: Any) -> tuple[int, int]:
    """The bytes of a view's elements before its address, and those from its address to the end of the last element."""
    before, length = 0, 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride < 0:
            before -= (size - 1) * stride
        else:
            length += (size - 1) * stride
    size = int(tensor.element_size())
    return before * size, length * size


def known_room(address: int) -> int:
    """The bytes from an address to the end of the tensor's memory that it lies in, 0 where it lies in none."""
    table = known_memory(()).tolist()
    ends = (end for start, end in zip(table[1::2], table[2::2], strict=True) if start <= address < end)
    return next(ends, address) - address


class Launcher:
    """Is created once for each compiled kernel; its `run` is called for each launch.

    Where `reaches_before`, it takes arguments with elements before their address, and C that does.
    """

    def __init__(self, src: Any, metadata: Any, reaches_before: bool = False) -> None:
        self.src, self.metadata, self.reaches_before = src, metadata, reaches_before
        self.ttir_path = Path()
        # Raises what the GPU of the knobs would raise.
        self.check_limits: Callable[[], None] = lambda: None
        self.name: str = metadata.name
        self.kernel = getattr(src, "fn", None)
        self.site_records: list[dict[str, Any]] = metadata.sites
        self.parameters: list[list[str]] = metadata.parameters
        self.offset_locations: list[list[Any]] = metadata.offset_locations
        self.follows_memory = any(MEMORY in site["arguments"] for site in self.site_records)
        self.instruments = frozenset(metadata.instruments)
        constants.add(metadata.compared_numbers)
        self.counter_address = 0
        if "counters" in self.instruments:
            read = (CounterSite.from_json(site) for site in metadata.counters)
            counter_sites = [replace(site, file=self.source_file(site.file)) for site in read]
            self.counter_address = counters.allocate(metadata.hash, self.name, counter_sites)
        self.run = self.make_run(tuple(src.signature.values()))

    def make_run(self, types: tuple[Any, ...]) -> Callable[..., None]:
        """A Python function that packs exactly these arguments and launches."""
        code = launch_code(types, "unwritten" in self.instruments, self.follows_memory, self.reaches_before)
        if code.arguments != len(self.parameters):
            raise TypeError(f"kernel {self.name} has {len(self.parameters)} parameters, its signature {code.arguments}")
        self.slots = code.slots
        space: dict[str, Any] = {"span": span, "extent": extent, "self": self, "pack": code.pack, "shadow": shadow}
        space |= {"known_memory": known_memory, "ReachesBefore": ReachesBefore}
        space |= {"observation": current_observation, "knobs": knobs, "counters": self.counter_address}
        space["check_grid"] = check_grid
        exec(code.code, space)
        run: Callable[..., None] = space["run"]
        return run

    @cached_property
    def variant(self) -> tuple[Launcher, Any]:
        """What launches the kernel where an argument has elements before its address, and its function.

        The C for such arguments, which are rare, is made when the first one is passed: the usual C need not tell an
        argument's own address from its lowest one. OSError where the kernel's TTIR cannot be read.
        """
        text = self.ttir_path.read_text(encoding="utf-8")
        program = translate(text, tuple(self.metadata.instruments), reaches_before=True)
        return Launcher(self.src, self.metadata, True), load_kernel(self.name, KernelText.of(program.c))

    def run_variant(self, gx: int, gy: int, gz: int, stream: Any, packed: Any, *rest: Any) -> None:
        """Launches where an argument has elements before its address; `rest` is what `run` gets behind `packed`."""
        launcher, function = self.variant
        launcher.run(gx, gy, gz, stream, function, packed, *rest)

    def run_observed(self, function: Any, observation: Observation, pack: Pack, grid: Grid, extents: Extents) -> None:
        """Launches inside `observe()`."""
        log = observation.log
        log.launches.append(self.name)
        order = observation.permutation(prod(grid))
        left = observation.reports - len(log.violations)
        address = 0 if order is None else order.ctypes.data
        packed = pack(address, max(left, 1))
        has_shadows = "unwritten" in self.instruments
        launch = CpuLaunch(function, packed, self.slots, prod(grid), has_shadows, self.follows_memory)
        log.recorded_launches.append(launch)
        report = function(packed)
        if report:
            count, violations, failure = self.read_report(function, report, grid, extents)
            log.count += count
            log.add(violations, observation.reports)
            if failure:
                raise DeviceAssertion(failure)

    def raise_report(self, function: Any, report: int, grid: Grid, extents: Extents) -> None:
        """Raises DeviceAssertion, OutOfBounds or MemoryFault for what a report says first."""
        _, violations, failure = self.read_report(function, report, grid, extents)
        if failure:
            raise DeviceAssertion(failure)
        raise (OutOfBounds if violations[0].problem == "out-of-bounds" else MemoryFault)(violations[0])

    def read_report(
        self, function: Any, report: int, grid: Grid, extents: Extents
    ) -> tuple[int, list[Violation], Failure | None]:
        """How many violations a report counts, those that it kept, and the assertion that ended it; frees it."""
        count, kept = Struct("2q").unpack(ctypes.string_at(report, 16))
        data = ctypes.string_at(report + 16, RECORD.size * kept)
        function.release(report)
        if count < 0:
            raise MemoryError(f"no memory for kernel {self.name}, or for what it is to be checked with")
        records = list(RECORD.iter_unpack(data))
        failed = [record for record in records if PROBLEMS[record[0]] == "failed"]
        violations = [self.violation(record, grid, extents) for record in records if record not in failed]
        return count, violations, self.failure(failed[0], grid) if failed else None

    def failure(self, record: tuple[int, ...], grid: Grid) -> Failure:
        _, number, program, _, lane, _ = record
        site = self.sites[number]
        file, indexes = self.source_file(site.file), unravel(lane, site.shape)
        return Failure(self.name, file, site.line, site.kind, site.message, grid_index(program, grid), indexes)

    def violation(self, record: tuple[int, ...], grid: Grid, extents: Extents) -> Violation:
        problem, number, program, other, lane, address = record
        site, kind = self.sites[number], PROBLEMS[problem]
        arguments = [number for number in site.arguments if number != MEMORY]
        name, offset = "", address
        if arguments:
            argument = min(arguments, key=lambda number: distance(address, extents[number]))
            start, _, before = extents[argument]
            offset = (address - (start + before)) // site.size
            name = self.parameters[argument][0]
        file, indexes = self.source_file(site.file), unravel(lane, site.shape)
        is_overflow = kind == "overflow"
        other_program = None if is_overflow or other < 0 else grid_index(other, grid)
        return Violation(
            self.name, file, site.line, name, site.kind, grid_index(program, grid), indexes, offset, site.size, kind,
            other_program, self.overflow_cause(other, site) if is_overflow else "",
        )  # fmt: skip

    @cached_property
    def sites(self) -> list[CheckSite]:
        return [CheckSite.from_json(site) for site in self.site_records]

    @cached_property
    def files(self) -> list[str]:
        """The files of the kernel and of the functions that it calls; none where Triton did not compile it from one."""
        return list(dict.fromkeys(function.__code__.co_filename for function in find_functions(self.kernel)))

    def source_file(self, file: str) -> str:
        """Triton's cache goes by the source's text: the kernel may have been compiled from copies of its files."""
        same_name = [one for one in self.files if basename(one) == basename(file)]
        return file if file in same_name else max(same_name, key=lambda one: common_parts(one, file), default=file)

    def overflow_cause(self, number: int, site: CheckSite) -> str:
        """The line of the arithmetic that wrapped around, where it is not that of the access."""
        file, line = self.offset_locations[number]
        return "" if (file, line) == (site.file, site.line) else f"{self.source_file(file)}:{line}"


def grid_index(program: int, grid: Grid) -> Program:
    """The index in the grid of a program's number."""
    return program % grid[0], program // grid[0] % grid[1], program // grid[0] // grid[1]


def shadow(tensor: Any) -> tuple[int, int]:
    """The distance of a tensor's shadow from it, and its poison."""
    observation = current_observation()
    return UNTRACKED if observation is None or observation.memory is None else observation.memory.shadow(tensor)


def common_parts(first: str, second: str) -> int:
    """How many of their last parts two paths have in common."""
    pairs = zip(reversed(Path(first).parts), reversed(Path(second).parts), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def distance(address: int, extent: Extent) -> int:
    """How far an address is from an argument."""
    start, length, _ = extent
    return max(start - address, address - (start + length), 0)


def unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))
