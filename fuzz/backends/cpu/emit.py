"""A kernel's TTIR -> the C file that runs its launches."""

from __future__ import annotations

from dataclasses import dataclass

from . import assembly, casts, dot, elementwise, memory, messages, reduce, scaled, shapes  # noqa: F401  (they register)
from .calls import merge
from .control import lower_blocks
from .lower import Lowering
from .parse import parse
from .prelude import prelude
from .provenance import trace
from .sites import Site
from .types import Type
from .views import Loop, Uniform, flat, identity, loop_heads

STACK_BYTES = 256 * 1024
# `modes`: 1 rounds operands of dots to tf32; the bits above are the seed of reductions' orders, 0 for their own.
HEADER = ("gx", "gy", "gz", "order", "limit", "modes")


@dataclass(frozen=True, slots=True)
class Program:
    """A translated kernel: its C text, its places of access, and its parameters in order."""

    name: str
    c: str
    sites: list[Site]
    parameters: list[tuple[str, str]]


def translate(text: str) -> Program:
    """Translate a module: a kernel and what it calls."""
    function = merge(parse(text))
    trace(function)
    lowering = Lowering(function)
    parameters = [(value.name, value.typed.element) for value in function.parameters]
    names = bind_parameters(lowering)
    lower_blocks(lowering, function.blocks)
    where = f"/* {function.name}, from {function.location} */"
    body = program(lowering, names)
    texts = [prelude(body), where, body, launch(lowering, names)]
    return Program(function.name, "\n".join(texts), lowering.sites, parameters)


def bind_parameters(lowering: Lowering) -> list[str]:
    names = []
    for value in lowering.function.parameters:
        name = lowering.names.pick(value.name)
        lowering.names.taken |= {f"{name}_length", *(f"{name}_room{size}" for size in (1, 2, 4, 8))}
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
            parts.append(f"i64 {name}_length")
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
    """A loop nest; lanes that are read elsewhere are kept in their arrays."""
    lines = loop_heads(loop.shape)
    here = flat(identity(loop.shape), loop.shape)
    for lane, text in loop.lines:
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


def launch(lowering: Lowering, names: list[str]) -> str:
    """The C function that runs a launch. `packed` holds 8 bytes each of the header and of the parameters
    (pointers as address and length, floats as double)."""
    passed, slot = ["&run", "arena"], len(HEADER)
    for value in lowering.function.parameters:
        kind = value.typed
        if kind.is_pointer:
            passed += [f"packed[{slot}].i", f"packed[{slot + 1}].i"]
            slot += 2
            continue
        passed.append(scalar_argument(kind, f"packed[{slot}]"))
        slot += 1
    return LAUNCH.replace("ARENA", str(arena_bytes(lowering))).replace("PASSED", ", ".join(passed))


def scalar_argument(type: Type, slot: str) -> str:
    if type.is_narrow:
        return f"round_{type.element}(odd_f32({slot}.f))"
    return f"({type.c}){slot}.{'f' if type.is_float else 'i'}"


LAUNCH = """
typedef union { i64 i; f64 f; } Slot;
/* Returns NULL, or a report that the caller frees. */
__attribute__((visibility("default"))) void *launch(const Slot *packed) {
    Run run;
    char *arena = ARENA ? malloc(ARENA) : NULL;
    const i64 *order = (const i64 *)packed[3].i;
    const i64 programs = packed[0].i * packed[1].i * packed[2].i;
    run.nx = packed[0].i, run.ny = packed[1].i, run.nz = packed[2].i;
    run.limit = packed[4].i, run.tf32 = packed[5].i & 1, run.shuffle = packed[5].i >> 1, run.report = NULL;
    if (!_setjmp(run.stop)) {
        for (i64 k = 0; k < programs; k++) {
            const i64 p = order ? order[k] : k;
            run.program = p, run.x = p % run.nx, run.y = p / run.nx % run.ny, run.z = p / run.nx / run.ny;
            program(PASSED);
        }
    }
    free(arena);
    return run.report;
}
__attribute__((visibility("default"))) void release(void *report) { free(report); }
"""
