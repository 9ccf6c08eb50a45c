"""From `kernel[grid](...)`'s arguments to a call of the compiled C, as fast as Python allows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from math import prod
from os.path import basename
from struct import Struct
from typing import Any

from .descriptors import expanded
from .emit import HEADER
from .failures import KINDS, DeviceAssertion, Failure
from .knobs import knobs
from .runtime import OBSERVED, Observation, OutOfBounds, Violation
from .sites import Site

Extent = tuple[int, int]
Extents = dict[int, Extent]
Grid = tuple[int, int, int]
Pack = Callable[[int, int, int], bytes]
RECORD = Struct("4q")


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
        self.sites = [Site.from_json(site) for site in metadata.sites]
        self.parameters: list[list[str]] = metadata.parameters
        self.run = self.compiled(list(src.signature.values()))

    def compiled(self, types: list[Any]) -> Callable[..., None]:
        """A function that packs exactly these arguments."""
        live = list(leaves(types, ""))
        if len(live) != len(self.parameters):
            raise TypeError(f"kernel {self.name} has {len(self.parameters)} parameters, its signature {len(live)}")
        lines, packed, extents = [], [], []
        for number, (kind, place) in enumerate(live):
            if kind.startswith("*"):
                lines.append(f"    p{number}, n{number} = extent({place})")
                packed += [f"p{number}", f"n{number}"]
                extents.append(f"{number}: (p{number}, n{number})")
            else:
                packed.append(place)
        arguments = "".join(f", a{number}" for number in range(len(types)))
        values = "".join(f", {text}" for text in packed)
        source = SOURCE.format(arguments=arguments, values=values, extents=", ".join(extents), lines="\n".join(lines))
        layout = Struct(f"={len(HEADER)}q" + "".join(slot_format(kind) for kind, _ in live))
        space: dict[str, Any] = {"extent": extent, "self": self, "pack": layout.pack}
        space |= {"observed": OBSERVED.get, "knobs": knobs}
        exec(source, space)
        run: Callable[..., None] = space["run"]
        return run

    def observed(self, function: Any, watch: Observation, pack: Pack, grid: Grid, extents: Extents) -> None:
        """Run inside `observe()`."""
        log = watch.log
        log.launches.append(self.name)
        order = watch.permutation(prod(grid))
        left = watch.reports - len(log.violations)
        address = 0 if order is None else order.ctypes.data
        report = function(pack(address, max(left, 1), knobs.modes))
        if report:
            count, found, failure = self.read(function, report, grid, extents)
            log.count += count
            log.violations += found[: max(left, 0)]
            if failure:
                raise DeviceAssertion(failure)

    def fail(self, function: Any, report: int, grid: Grid, extents: Extents) -> None:
        _, found, failure = self.read(function, report, grid, extents)
        raise DeviceAssertion(failure) if failure else OutOfBounds(found[0])

    def read(
        self, function: Any, report: int, grid: Grid, extents: Extents
    ) -> tuple[int, list[Violation], Failure | None]:
        """How many violations a report counts, those that it kept, and the assertion that ended it; frees it."""
        count, kept = Struct("2q").unpack(ctypes.string_at(report, 16))
        data = ctypes.string_at(report + 16, RECORD.size * kept)
        function.release(report)
        records = list(RECORD.iter_unpack(data))
        failed = [record for record in records if self.sites[record[0]].kind in KINDS]
        found = [self.violation(record, grid, extents) for record in records if record not in failed]
        return count, found, self.failure(failed[0], grid) if failed else None

    def failure(self, record: tuple[int, ...], grid: Grid) -> Failure:
        number, program, lane, _ = record
        site = self.sites[number]
        index = unravel(lane, site.shape)
        return Failure(self.name, self.shown(site), site.line, site.kind, site.message, placed(program, grid), index)

    def shown(self, site: Site) -> str:
        """Triton's cache goes by the source's text: the kernel may have been compiled from a copy of the file."""
        return self.file if basename(self.file) == basename(site.file) else site.file

    def violation(self, record: tuple[int, ...], grid: Grid, extents: Extents) -> Violation:
        number, program, lane, address = record
        site = self.sites[number]
        argument = min(site.arguments, key=lambda number: distance(address, extents[number]))
        offset = (address - extents[argument][0]) // site.size
        name = self.parameters[argument][0]
        index = unravel(lane, site.shape)
        place = placed(program, grid)
        return Violation(self.name, self.shown(site), site.line, name, site.kind, place, index, offset, site.size)


def placed(program: int, grid: Grid) -> tuple[int, int, int]:
    """The place in the grid of a program's number."""
    return program % grid[0], program // grid[0] % grid[1], program // grid[0] // grid[1]


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
        report = function(pack(gx, gy, gz, 0, 0, knobs.modes{values}))
        if report:
            self.fail(function, report, (gx, gy, gz), {{{extents}}})
    else:
        arguments = lambda order, limit, modes: pack(gx, gy, gz, order, limit, modes{values})
        self.observed(function, watch, arguments, (gx, gy, gz), {{{extents}}})
    if leave is not None:
        leave(metadata)
"""
