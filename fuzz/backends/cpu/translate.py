"""A kernel's TTIR -> the C file that runs its launches."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.backends.cpu.analysis.affine import Intervals
from fuzz.backends.cpu.analysis.compared_constants import Number, compared
from fuzz.backends.cpu.analysis.inline_calls import merge
from fuzz.backends.cpu.analysis.provenance import trace
from fuzz.backends.cpu.codegen.coverage_counters import Tally
from fuzz.backends.cpu.codegen.launch import launch_text, pointer_parameters
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.codegen.operands import Loop, Uniform, current, loop_heads
from fuzz.backends.cpu.codegen.prelude import prelude
from fuzz.backends.cpu.frontend.ir import Location
from fuzz.backends.cpu.frontend.parser import parse
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.instruments import PLAIN, Instruments
from fuzz.backends.cpu.ops import (  # noqa: F401  (they register)
    atomics,
    casts,
    debug,
    dot,
    dot_scaled,
    elementwise,
    inline_asm,
    memory,
    movement,
    reductions,
)
from fuzz.backends.cpu.ops.control import lower_blocks

STACK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A translated kernel: its C text, its places of access, its parameters in order, its places that are counted,
    those whose 32-bit arithmetic makes offsets, and the numbers that it compares with."""

    name: str
    c: str
    sites: list[CheckSite]
    parameters: list[tuple[str, str]]
    counters: list[CounterSite]
    wraps: list[Location]
    compared: list[Number]


def translate(text: str, instruments: Instruments = PLAIN) -> Program:
    """Translate a module: a kernel and what it calls."""
    function = merge(parse(text))
    trace(function)
    numbers = compared(function)
    lowering = Lowering(function, instruments)
    lowering.intervals = Intervals(lowering)
    if "counters" in instruments:
        lowering.watcher = Tally(lowering)
    parameters = [(value.name, value.typed.element) for value in function.parameters]
    names = bind_parameters(lowering)
    lower_blocks(lowering, function.blocks)
    where = f"/* {function.name}, from {function.location} */"
    body = program(lowering, names)
    c = "\n".join([prelude(body), where, body, launch_text(lowering, arena_bytes(lowering))])
    return Program(function.name, c, lowering.sites, parameters, lowering.counters, lowering.wraps, numbers)


def bind_parameters(lowering: Lowering) -> list[str]:
    names = []
    for value in lowering.function.parameters:
        name = lowering.names.pick(value.name)
        suffixes = ("length", "shadow", "poison", "owner", "reader", *(f"room{size}" for size in (1, 2, 4, 8)))
        lowering.names.taken |= {f"{name}_{suffix}" for suffix in suffixes}
        lowering.values[value] = Uniform(value.typed, name)
        names.append(name)
    return names


# text


def program(lowering: Lowering, names: list[str]) -> str:
    """The C function that runs one program of the grid."""
    lines = [f"static void program({signature(lowering, names)}) {{"]
    lines += indented(list(lowering.rooms.values()) + array_lines(lowering) + body_lines(lowering))
    return "\n".join([*lines, "}"])


def signature(lowering: Lowering, names: list[str]) -> str:
    parts = ["Run *run", "char *arena"]
    for name, value in zip(names, lowering.function.parameters, strict=True):
        parts.append(f"{value.typed.c} {name}")
        if value.typed.is_pointer:
            parts += pointer_parameters(lowering, name)
    return ", ".join(parts)


def array_lines(lowering: Lowering) -> list[str]:
    """Arrays on the stack while they fit, the rest in memory that the launch allocates."""
    lines, on_stack, in_arena = [], 0, 0
    for lane in lowering.arrays:
        if not lane.kept:
            continue
        size = c_size(lane.type) * lane.type.count
        if on_stack + size <= STACK_BYTES:
            on_stack += size
            lines.append(f"{lane.type.c} {lane.array}[{lane.type.count}] ALIGNED;")
        else:
            lines.append(f"{lane.type.c} *restrict {lane.array} = ({lane.type.c} *)(arena + {in_arena});")
            in_arena += (size + 63) // 64 * 64
    return lines


def arena_bytes(lowering: Lowering) -> int:
    sizes = [c_size(lane.type) * lane.type.count for lane in lowering.arrays if lane.kept]
    on_stack = in_arena = 0
    for size in sizes:
        if on_stack + size <= STACK_BYTES:
            on_stack += size
        else:
            in_arena += (size + 63) // 64 * 64
    return in_arena


def c_size(type: Type) -> int:
    return 4 if type.is_narrow else type.size


def body_lines(lowering: Lowering) -> list[str]:
    return [line for part in lowering.code for line in ([part] if isinstance(part, str) else loop_lines(part))]


def loop_lines(loop: Loop) -> list[str]:
    """The loop nest; where it has a fast text, that one first, and the slow one if a lane needs a closer look."""
    sums = [f"{name} = 0;" for name in loop.sums]
    declared = [f"int {line}" for line in sums]
    if not loop.fast:
        if not (loop.before or loop.after or sums):
            return nest_lines(loop, fast=False)
        return ["{", *loop.before, *declared, *nest_lines(loop, fast=False), *loop.after, "}"]
    lines = ["{", "int slow = 0;", *loop.before, *declared, "if (!slow) {", *nest_lines(loop, fast=True), "}"]
    lines += ["if (__builtin_expect(slow, 0)) {", *sums, *nest_lines(loop, fast=False), "}"]
    return [*lines, *loop.after, "}"]


def nest_lines(loop: Loop, fast: bool) -> list[str]:
    """Lanes that are read elsewhere are kept in their arrays."""
    lines = loop_heads(loop.shape, rolled=fast and loop.loads_some)
    here = current(loop.shape)
    for number, (lane, text) in enumerate(loop.lines):
        if fast and number in loop.fast:
            statements, text = loop.fast[number]
            lines += statements
        lines.append(text if lane is None else f"const {lane.type.c} {lane.name} = {text};")
        if lane is not None and lane.kept:
            lines.append(f"{lane.array}[{here}] = {lane.name};")
    return [*lines, "}"]


def indented(lines: list[str]) -> list[str]:
    depth, out = 1, []
    for line in lines:
        code = line if not line.startswith("/*") else ""
        opened, closed = code.count("{"), code.count("}")
        leading = len(code) - len(code.lstrip("} "))
        depth -= code[:leading].count("}")
        out.append("    " * max(depth, 1) + line)
        depth += opened - (closed - code[:leading].count("}"))
    return out
