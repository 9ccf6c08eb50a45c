"""Translates a kernel's TTIR to the C file that runs its launches."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.backends.cpu.analysis.affine import AffineAnalysis
from fuzz.backends.cpu.analysis.compared_constants import Number, compared_numbers
from fuzz.backends.cpu.analysis.dataflow import trace_provenance
from fuzz.backends.cpu.analysis.inline_calls import inline_calls
from fuzz.backends.cpu.analysis.moved_bits import move_as_integers
from fuzz.backends.cpu.codegen.coverage_counters import CoverageCounters
from fuzz.backends.cpu.codegen.launch import launch_text, pointer_parameters
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CheckSite, CounterSite
from fuzz.backends.cpu.codegen.operands import Uniform
from fuzz.backends.cpu.codegen.prelude import prelude
from fuzz.backends.cpu.frontend.ir import SourceLocation
from fuzz.backends.cpu.frontend.parser import parse
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.instruments import PLAIN, Instruments
from fuzz.backends.cpu.ops.control import lower_blocks
from fuzz.backends.cpu.ops.table import OPERATIONS

STACK_BYTES = 256 * 1024
PARAMETER_SUFFIXES = "length shadow poison before address owner reader room1 room2 room4 room8".split()


@dataclass(frozen=True, slots=True)
class Program:
    """A translated kernel: its C text, the sites that it checks and counts, its parameters in order as (name, element
    type), the locations of 32-bit arithmetic that makes offsets, and the numbers that it compares with."""

    name: str
    c: str
    sites: list[CheckSite]
    parameters: list[tuple[str, str]]
    counters: list[CounterSite]
    offset_locations: list[SourceLocation]
    compared_numbers: list[Number]


def translate(text: str, instruments: Instruments = PLAIN, reaches_before: bool = False) -> Program:
    """Translates a module: a kernel and what it calls. UnsupportedOperation for what this backend does not know.

    Where `reaches_before`, launches say of each pointer how many bytes of its argument lie before it.
    """
    function = inline_calls(parse(text, OPERATIONS))
    trace_provenance(function)
    numbers = compared_numbers(function)
    move_as_integers(function)
    lowering = Lowering(function, instruments, reaches_before)
    lowering.affine = AffineAnalysis(lowering)
    if "counters" in instruments:
        lowering.count = CoverageCounters(lowering)
    parameters = [(value.name, value.type.element) for value in function.parameters]
    bind_parameters(lowering)
    lower_blocks(lowering, function.blocks)
    comment = f"/* {function.name}, from {function.location} */"
    arrays, arena_bytes = array_declarations(lowering)
    body = program_function(lowering, arrays)
    c = "\n".join([prelude(lowering.uses_libdevice), comment, body, launch_text(lowering, arena_bytes)])
    return Program(function.name, c, lowering.sites, parameters, lowering.counters, lowering.offset_locations, numbers)


def bind_parameters(lowering: Lowering) -> None:
    for value in lowering.function.parameters:
        name = lowering.identifiers.pick(value.name)
        lowering.identifiers.taken |= {f"{name}_{suffix}" for suffix in PARAMETER_SUFFIXES}
        lowering.parameter_names.append(name)
        if lowering.reaches_before and value.type.is_pointer:
            lowering.limits[name] = f"const i64 {name}_address = {name} + {name}_before;"
            name = f"{name}_address"
        lowering.values[value] = Uniform(value.type, name)


def program_function(lowering: Lowering, arrays: list[str]) -> str:
    """The C function that runs one program of the grid."""
    body = [line for part in lowering.code for line in ([part] if isinstance(part, str) else part.lines())]
    lines = indented([*lowering.limits.values(), *arrays, *body])
    return "\n".join([f"static void program({signature(lowering)}) {{", *lines, "}"])


def signature(lowering: Lowering) -> str:
    parts = ["Run *run", "char *arena"]
    for name, value in zip(lowering.parameter_names, lowering.function.parameters, strict=True):
        parts.append(f"{value.type.c} {name}")
        if value.type.is_pointer:
            parts += pointer_parameters(lowering, name)
    return ", ".join(parts)


def array_declarations(lowering: Lowering) -> tuple[list[str], int]:
    """Arrays on the stack while they fit, the others in an arena that the launch allocates; and the arena's bytes."""
    lines, on_stack, in_arena = [], 0, 0
    for lane in lowering.arrays:
        if not lane.needs_array:
            continue
        size = c_size(lane.type) * lane.type.count
        if on_stack + size <= STACK_BYTES:
            on_stack += size
            lines.append(f"{lane.type.c} {lane.array}[{lane.type.count}] ALIGNED;")
        else:
            lines.append(f"{lane.type.c} *restrict {lane.array} = ({lane.type.c} *)(arena + {in_arena});")
            in_arena += (size + 63) // 64 * 64
    return lines, in_arena


def c_size(type: Type) -> int:
    """Bytes of the C type that holds one element."""
    return 4 if type.is_narrow else type.size


def indented(lines: list[str]) -> list[str]:
    depth, out = 1, []
    for line in lines:
        if "{" not in line and "}" not in line:
            out.append("    " * max(depth, 1) + line)
            continue
        code = line if not line.startswith("/*") else ""
        opened, closed = code.count("{"), code.count("}")
        leading = len(code) - len(code.lstrip("} "))
        depth -= code[:leading].count("}")
        out.append("    " * max(depth, 1) + line)
        depth += opened - (closed - code[:leading].count("}"))
    return out
