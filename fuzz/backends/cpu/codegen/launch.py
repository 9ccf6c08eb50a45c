"""Generates the C that runs a launch: arguments, the order of its programs, and tags of memory."""

from __future__ import annotations

from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.prelude import read_c
from fuzz.backends.cpu.frontend.types import Type

LAUNCH = read_c("launch.c")
"""Has `@NAME@` for what differs from kernel to kernel."""
HEADER = ("gx", "gy", "gz", "order", "limit", "reduction_order", "counters", "known", "prints")


def launch_text(lowering: Lowering, arena: int) -> str:
    """The C functions `launch`, `launch_many` and `release`. `arena` is the bytes of memory for arrays besides
    those on the stack.

    The launch gets `packed`, 8 bytes each for the header and the parameters: pointers as lowest address and length (and
    the distance of their shadow and their poison where unwritten memory is reported, and the bytes of the argument
    before its own address where it may have some), floats as double.
    """
    passed, slot = ["&run", "arena"], len(HEADER)
    pointers: list[str] = []
    has_shadows, has_tags = "unwritten" in lowering.instruments, "conflicts" in lowering.instruments
    for value in lowering.function.parameters:
        kind = value.type
        if not kind.is_pointer:
            passed.append(scalar_argument(kind, f"packed[{slot}]"))
            slot += 1
            continue
        slots = 2 + 2 * has_shadows + lowering.reaches_before
        passed += [f"packed[{slot + k}].i" for k in range(slots)]
        passed += [f"all->{name}[{len(pointers)}]" for name in ("owner", "reader") if has_tags]
        pointers.append(f"{{{slot}, {Type(kind.pointee).size}}}")
        slot += slots
    switches = {
        "ARENA": str(arena), "PASSED": ", ".join(passed), "POINTERS": ", ".join([*pointers, "{0, 0}"]),
        "CONTESTED": str(int(has_tags)), "RACED": str(int("races" in lowering.instruments)),
        "SYNCHRONISES": str(int(lowering.synchronises)), "COUNT": str(len(pointers)),
    }  # fmt: skip
    text = LAUNCH
    for name, replacement in switches.items():
        text = text.replace(f"@{name}@", replacement)
    return text


def pointer_parameters(lowering: Lowering, name: str) -> list[str]:
    """The C parameters that a program has for each pointer besides the address."""
    parts = [f"i64 {name}_length"]
    if "unwritten" in lowering.instruments:
        parts += [f"i64 {name}_shadow", f"i64 {name}_poison"]
    if lowering.reaches_before:
        parts.append(f"i64 {name}_before")
    if "conflicts" in lowering.instruments:
        parts += [f"i64 {name}_owner", f"i64 {name}_reader"]
    return parts


def scalar_argument(type: Type, slot: str) -> str:
    if type.is_narrow:
        return f"round_{type.element}(odd_f32({slot}.f))"
    return f"({type.c}){slot}.{'f' if type.is_float else 'i'}"
