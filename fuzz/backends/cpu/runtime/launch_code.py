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
    if enter is not None:
        enter(metadata)
{lines}
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
"""


class LaunchCode(NamedTuple):
    """What launchers of equal signatures share: the code that makes their `run`, how many arguments of the C function
    it packs and by what, and which of the packed slots hold an address."""

    code: CodeType
    arguments: int
    pack: Callable[..., bytes]
    slots: tuple[int, ...]


@lru_cache(maxsize=1024)
def launch_code(types: tuple[Any, ...], has_shadows: bool, follows_memory: bool) -> LaunchCode:
    """The code of a launcher for arguments of these types."""
    live = list(flatten(types, ""))
    lines: list[str] = []
    packed: list[str] = []
    extents: list[str] = []
    pointers: list[int] = []
    for number, (kind, expression) in enumerate(live):
        if kind.startswith("*"):
            pointers.append(len(HEADER) + len(packed))
            lines.append(f"    p{number}, n{number} = extent({expression})")
            packed += [f"p{number}", f"n{number}"]
            if has_shadows:
                lines.append(f"    s{number}, w{number} = shadow({expression})")
                packed += [f"s{number}", f"w{number}"]
            extents.append(f"{number}: (p{number}, n{number})")
        else:
            packed.append(expression)
    arguments = "".join(f", a{number}" for number in range(len(types)))
    values = "".join(f", {text}" for text in packed)
    known = "0"
    if follows_memory:
        lines.append(f"    table = known_memory({{{', '.join(extents)}}}.values())")
        known = "table.ctypes.data"
    source = RUN_SOURCE.format(
        arguments=arguments, values=values, extents=", ".join(extents), lines="\n".join(lines), known=known
    )
    formats = (slot_format(kind) * (1 + (has_shadows and kind.startswith("*"))) for kind, _ in live)
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
    """How struct packs one argument: all slots have 8 bytes."""
    if kind.startswith("*"):
        return "qq"
    if kind in ("fp16", "bf16", "fp32", "f32", "fp64"):
        return "d"
    return "Q" if kind == "u64" else "q"
