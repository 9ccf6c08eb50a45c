"""From `kernel[grid](...)`'s arguments to a call of the compiled C, as fast as Python allows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from math import prod
from os.path import basename
from struct import Struct
from typing import Any

from fuzz.backends.cpu.analysis.compared_constants import constants
from fuzz.backends.cpu.codegen.launch import HEADER
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.runtime.counters import counters
from fuzz.backends.cpu.runtime.descriptors import expanded
from fuzz.backends.cpu.runtime.observation import OBSERVED, Observation
from fuzz.backends.cpu.runtime.recorded_launch import RecordedLaunch
from fuzz.backends.cpu.runtime.shadow import NOTHING
from fuzz.backends.cpu.runtime.violations import (
    PROBLEMS,
    DeviceAssertion,
    Failure,
    MemoryFault,
    OutOfBounds,
    Program,
    Violation,
)
from fuzz.backends.triton_host.knobs import knobs

Extent = tuple[int, int]
Extents = dict[int, Extent]
Grid = tuple[int, int, int]
Pack = Callable[[int, int, int], bytes]
RECORD = Struct("6q")


def extent(tensor: Any) -> Extent:
    """Address and length in bytes of what a tensor may touch: from its lowest to its highest element."""
    if tensor is None:
        return 0, 0
    if not getattr(tensor, "is_cpu", True):
        raise ValueError(f"the cpu backend is active, but an argument is on {tensor.device}")
    if not hasattr(tensor, "element_size"):
        raise TypeError(f"the cpu backend needs tensors with a shape and strides, not {type(tensor).__name__}")
    shape = tensor.shape
    if 0 in shape:
        return tensor.data_ptr(), 0
    span = 1
    for size, stride in zip(shape, tensor.stride(), strict=True):
        span += (size - 1) * stride
    return tensor.data_ptr(), span * tensor.element_size()


def leaves(types: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every non-constant argument as (type, Python expression), tuples flattened."""
    for index, kind in enumerate(types):
        place = f"{path}[{index}]" if path else f"a{index}"
        if isinstance(kind, tuple):
            yield from leaves(kind, place)
        elif kind.startswith("tensordesc"):
            yield from expanded(kind, place)
        elif kind != "constexpr":
            yield kind, place


def slot_format(kind: str) -> str:
    """How struct packs one argument: all slots have 8 bytes."""
    if kind.startswith("*"):
        return "qq"
    if kind in ("fp16", "bf16", "fp32", "f32", "fp64"):
        return "d"
    return "Q" if kind == "u64" else "q"


class Launcher:
    """Built once for each compiled kernel; its `run` is called for each launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.name: str = metadata.name
        self.file = source_file(src)
        self.sites = [CheckSite.from_json(site) for site in metadata.sites]
        self.parameters: list[list[str]] = metadata.parameters
        self.offset_locations: list[list[Any]] = metadata.offset_locations
        self.instruments = frozenset(metadata.instruments)
        constants.add(metadata.compared_numbers)
        self.counted = 0
        if "counters" in self.instruments:
            counted = [CounterSite.from_json(counter) for counter in metadata.counters]
            self.counted = counters.allocate(metadata.hash, self.name, self.file, counted)
        self.run = self.compiled(list(src.signature.values()))

    def compiled(self, types: list[Any]) -> Callable[..., None]:
        """A function that packs exactly these arguments."""
        live = list(leaves(types, ""))
        if len(live) != len(self.parameters):
            raise TypeError(f"kernel {self.name} has {len(self.parameters)} parameters, its signature {len(live)}")
        lines: list[str] = []
        packed: list[str] = []
        extents: list[str] = []
        pointers: list[int] = []
        for number, (kind, place) in enumerate(live):
            if kind.startswith("*"):
                pointers.append(len(HEADER) + len(packed))
                lines.append(f"    p{number}, n{number} = extent({place})")
                packed += [f"p{number}", f"n{number}"]
                if "unwritten" in self.instruments:
                    lines.append(f"    s{number}, w{number} = shadow({place})")
                    packed += [f"s{number}", f"w{number}"]
                extents.append(f"{number}: (p{number}, n{number})")
            else:
                packed.append(place)
        self.slots = tuple(pointers)
        arguments = "".join(f", a{number}" for number in range(len(types)))
        values = "".join(f", {text}" for text in packed)
        source = SOURCE.format(arguments=arguments, values=values, extents=", ".join(extents), lines="\n".join(lines))
        watched = "unwritten" in self.instruments
        formats = (slot_format(kind) * (1 + (watched and kind.startswith("*"))) for kind, _ in live)
        layout = Struct(f"={len(HEADER)}q" + "".join(formats))
        space: dict[str, Any] = {"extent": extent, "self": self, "pack": layout.pack, "shadow": shadow}
        space |= {"observed": OBSERVED.get, "knobs": knobs, "counted": self.counted, "threads": self.threads}
        exec(source, space)
        run: Callable[..., None] = space["run"]
        return run

    def threads(self) -> int:
        """How many threads run the programs: one, unless the kernel was compiled for more."""
        if "threads" not in self.instruments:
            return 1
        watch = OBSERVED.get()
        return knobs.threads if watch is None else watch.threads

    def observed(self, function: Any, watch: Observation, pack: Pack, grid: Grid, extents: Extents) -> None:
        """Run inside `observe()`."""
        log = watch.log
        log.launches.append(self.name)
        order = watch.permutation(prod(grid))
        left = watch.reports - len(log.violations)
        address = 0 if order is None else order.ctypes.data
        packed = pack(address, max(left, 1), knobs.modes)
        log.launched.append(RecordedLaunch(function, packed, self.slots, prod(grid), "unwritten" in self.instruments))
        report = function(packed)
        if report:
            count, found, failure = self.read(function, report, grid, extents)
            log.count += count
            log.take(found, watch.reports)
            if failure:
                raise DeviceAssertion(failure)

    def fail(self, function: Any, report: int, grid: Grid, extents: Extents) -> None:
        _, found, failure = self.read(function, report, grid, extents)
        if failure:
            raise DeviceAssertion(failure)
        raise (OutOfBounds if found[0].problem == "out-of-bounds" else MemoryFault)(found[0])

    def read(
        self, function: Any, report: int, grid: Grid, extents: Extents
    ) -> tuple[int, list[Violation], Failure | None]:
        """How many violations a report counts, those that it kept, and the assertion that ended it; frees it."""
        count, kept = Struct("2q").unpack(ctypes.string_at(report, 16))
        data = ctypes.string_at(report + 16, RECORD.size * kept)
        function.release(report)
        if count < 0:
            raise MemoryError(f"no memory for what kernel {self.name} is to be checked with")
        records = list(RECORD.iter_unpack(data))
        failed = [record for record in records if PROBLEMS[record[0]] == "failed"]
        found = [self.violation(record, grid, extents) for record in records if record not in failed]
        return count, found, self.failure(failed[0], grid) if failed else None

    def failure(self, record: tuple[int, ...], grid: Grid) -> Failure:
        _, number, program, _, lane, _ = record
        site = self.sites[number]
        file, place, index = self.shown(site.file), placed(program, grid), unravel(lane, site.shape)
        return Failure(self.name, file, site.line, site.kind, site.message, place, index)

    def violation(self, record: tuple[int, ...], grid: Grid, extents: Extents) -> Violation:
        problem, number, program, other, lane, address = record
        site, kind = self.sites[number], PROBLEMS[problem]
        argument = min(site.arguments, key=lambda number: distance(address, extents[number]))
        offset = (address - extents[argument][0]) // site.size
        name = self.parameters[argument][0]
        index, cause, beside = unravel(lane, site.shape), "", None
        if kind == "overflow":
            cause = self.cause(other, site)
        elif other >= 0:
            beside = placed(other, grid)
        file, place = self.shown(site.file), placed(program, grid)
        return Violation(
            self.name, file, site.line, name, site.kind, place, index, offset, site.size, kind, beside, cause
        )

    def shown(self, file: str) -> str:
        """Triton's cache goes by the source's text: the kernel may have been compiled from a copy of the file."""
        return self.file if basename(self.file) == basename(file) else file

    def cause(self, number: int, site: CheckSite) -> str:
        """The place of the arithmetic, where it is not that of the access."""
        file, line = self.offset_locations[number]
        return "" if (file, line) == (site.file, site.line) else f"{self.shown(file)}:{line}"


def placed(program: int, grid: Grid) -> Program:
    """The place in the grid of a program's number."""
    return program % grid[0], program // grid[0] % grid[1], program // grid[0] // grid[1]


def shadow(tensor: Any) -> tuple[int, int]:
    """How far away a tensor's shadow is, and its poison."""
    watch = OBSERVED.get()
    return NOTHING if watch is None or watch.memory is None else watch.memory.shadow(tensor)


def source_file(src: Any) -> str:
    """The file of the kernel's function, empty where Triton did not compile it from one."""
    code = getattr(getattr(getattr(src, "fn", None), "fn", None), "__code__", None)
    return code.co_filename if code is not None else ""


def distance(address: int, extent: Extent) -> int:
    """How far an address is from an argument."""
    start, length = extent
    return max(start - address, address - (start + length), 0)


def unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))


SOURCE = """
def run(gx, gy, gz, stream, function, packed, metadata, enter, leave{arguments}):
    if enter is not None:
        enter(metadata)
{lines}
    watch = observed()
    if watch is None:
        report = function(pack(gx, gy, gz, 0, 0, knobs.modes, threads(), counted{values}))
        if report:
            self.fail(function, report, (gx, gy, gz), {{{extents}}})
    else:
        arguments = lambda order, limit, modes: pack(gx, gy, gz, order, limit, modes, threads(), counted{values})
        self.observed(function, watch, arguments, (gx, gy, gz), {{{extents}}})
    if leave is not None:
        leave(metadata)
"""
