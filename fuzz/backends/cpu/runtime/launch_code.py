"""Writes the Python that packs the arguments of a launch, once for all kernels of one signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct
from types import CodeType
from typing import Any, NamedTuple

from fuzz.backends.cpu.codegen.launch import HEADER
from fuzz.backends.cpu.runtime.descriptors import expand_descriptor

RUN_SOURCE = """
def run(gx, gy, gz, stream, function, packed, metadata, enter, leave{arguments}):
    if knobs.gpu_limits:
        self.check_limits()
        check_grid(gx, gy, gz)
    elif gx < 0 or gy < 0:
        check_grid(gx, gy, gz)
    if enter is not None:
        enter(metadata)
    try:
        {reads}
    except ReachesBefore:
        pass
    else:
        active = observation()
        if active is None:
            report = function(pack(gx, gy, gz, 0, 0, knobs.reduction_order, counters, {known}, 1{values}))
            if report:
                self.raise_report(function, report, (gx, gy, gz), {{{extents}}})
        else:
            sums = knobs.reduction_order
            arguments = lambda order, limit: pack(gx, gy, gz, order, limit, sums, counters, {known}, 0{values})
            self.run_observed(function, active, arguments, (gx, gy, gz), {{{extents}}})
        if leave is not None:
            leave(metadata)
        return
    self.run_variant(gx, gy, gz, stream, packed, metadata, None, leave{arguments})
"""


class LaunchCode(NamedTuple):
    """What launchers of equal signatures share: the code that makes their `run`, how many arguments of the C function
    it packs and by what, and which of the packed slots hold an address."""

    code: CodeType
    arguments: int
    pack: Callable[..., bytes]
    slots: tuple[int, ...]


@lru_cache(maxsize=1024)
def launch_code(types: tuple[Any, ...], has_shadows: bool, follows_memory: bool, reaches_before: bool) -> LaunchCode:
    """The code of a launcher for arguments of these types. Where `reaches_before`, arguments may have elements before
    their address; else a launch with such a one is handed to `run_variant`."""
    live = list(flatten(types, ""))
    suffixes = "pn" + "sw" * has_shadows + "b" * reaches_before
    reads: list[str] = []
    packed: list[str] = []
    extents: dict[int, str] = {}
    pointers: list[int] = []
    for number, (kind, expression) in enumerate(live):
        if not kind.startswith("*"):
            packed.append(expression)
            continue
        pointers.append(len(HEADER) + len(packed))
        packed += [f"{suffix}{number}" for suffix in suffixes]
        if reaches_before:
            reads.append(f"p{number}, n{number}, b{number} = extent({expression})")
        else:
            reads.append(f"p{number}, n{number} = span({expression})")
        if has_shadows:
            reads.append(f"s{number}, w{number} = shadow({expression})")
        extents[number] = f"(p{number}, n{number}, {f'b{number}' if reaches_before else 0})"
    known = "0"
    if follows_memory:
        reads.append(f"table = known_memory([{', '.join(extents.values())}])")
        known = "table.ctypes.data"
    source = RUN_SOURCE.format(
        arguments="".join(f", a{number}" for number in range(len(types))),
        values="".join(f", {text}" for text in packed),
        extents=", ".join(f"{number}: {text}" for number, text in extents.items()),
        reads="\n        ".join(reads or ["pass"]),
        known=known,
    )
    formats = ("q" * len(suffixes) if kind.startswith("*") else slot_format(kind) for kind, _ in live)
    layout = Struct(f"={len(HEADER)}q" + "".join(formats))
    return LaunchCode(compile(source, "<generated>", "exec"), len(live), layout.pack, tuple(pointers))


def flatten(types: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every non-constant argument as (type, Python expression), tuples flattened."""
    for index, kind in enumerate(types):
        expression = f"{path}[{index}]" if path else f"a{index}"
        if isinstance(kind, tuple):
            yield from flatten(kind, expression)
        elif kind.startswith("tensordesc"):
            yield from expand_descriptor(kind, expression)
        elif kind != "constexpr":
            yield kind, expression


def slot_format(kind: str) -> str:
    """How struct packs a number: all slots have 8 bytes."""
    if kind in ("fp16", "bf16", "fp32", "f32", "fp64"):
        return "d"
    return "Q" if kind == "u64" else "q"
