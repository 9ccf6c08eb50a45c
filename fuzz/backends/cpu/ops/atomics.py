"""Defines read-modify-write and compare-and-swap, lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.backends.cpu.codegen.coverage_counters import count_mask
from fuzz.backends.cpu.codegen.index import current_index
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.access import CheckedAccess
from fuzz.backends.cpu.ops.definition import OpDef, keywords, no_flows

# (the old value, the operands' texts) -> C expression of what is stored.
NewValue = Callable[[str, list[str]], str]


def atomic_rmw(lowering: Lowering, op: Op) -> None:
    mask = op.operands[2] if len(op.operands) > 2 else None
    access = CheckedAccess(lowering, op.operands[0], "atomic", mask)
    combined = Combine(op.keywords[0], op.result.type)
    lower_update(lowering, op, access, lambda old, texts: combined(old, texts[1]), masked=mask is not None)


def atomic_cas(lowering: Lowering, op: Op) -> None:
    access = CheckedAccess(lowering, op.operands[0], "atomic")
    type = op.result.type
    same = equal_bits(type)
    lower_update(lowering, op, access, lambda old, texts: f"{same(old, texts[1])} ? {texts[2]} : {old}", masked=False)


def equal_bits(type: Type) -> Callable[[str, str], str]:
    """Compare and swap compares bits, also of floats."""
    bits = f"bits_{type.element}" if type.is_float else ""
    return lambda first, second: f"{bits}({first}) == {bits}({second})"


def lower_update(lowering: Lowering, op: Op, access: CheckedAccess, new: NewValue, masked: bool) -> None:
    """Lane by lane: read the old value, write the new one; the old one is the result, 0 where masked off."""
    type = op.result.type
    operands = lowering.operands(op)
    lowering.end_loop()
    old = lowering.variable(type, op.result.name or "atomic")
    place = old.at(current_index(type.shape), None)

    def compute(texts: list[str]) -> str:
        wanted = f"!({texts[2]})" if masked else "0"
        swap = (
            access.report_unwritten("address") + write_synchronise(lowering) + write_exchange(access, place, texts, new)
        )
        refused = f"{place} = {access.outside('address', f'_{access.element}')};"
        inside = f"if ({access.inside('address')}) {{ {swap} }} else {refused}"
        return f"if ({wanted}) {place} = 0; else {{ i64 address = {texts[0]}; {access.report_overflow()}{inside} }}"

    lowering.for_each_lane(access.shape, operands, compute, "atomic")
    lowering.end_loop()
    lowering.values[op.result] = old


def write_synchronise(lowering: Lowering) -> str:
    return "synchronise(run); " if "conflicts" in lowering.instruments else ""


def write_exchange(access: CheckedAccess, place: str, texts: list[str], new: NewValue) -> str:
    """The statements that put the old value in its place and the new one into memory."""
    element, written = access.element, access.mark_written("address")
    return f"{place} = load_{element}(address); {written}store_{element}(address, {new(place, texts)});"


class Combine:
    """Computes the new value that a read-modify-write stores."""

    OPERATORS = {"add": "+", "and": "&", "or": "|", "xor": "^"}

    def __init__(self, kind: str, type: Type) -> None:
        self.kind, self.type = kind, type

    def __call__(self, old: str, value: str) -> str:
        kind, type = self.kind, self.type
        if kind == "exch":
            return value
        if kind == "fadd":
            return f"round_{type.element}({old} + {value})" if type.is_narrow else f"{old} + {value}"
        if kind in self.OPERATORS:
            return f"({type.c})({old} {self.OPERATORS[kind]} {value})"
        if kind in ("max", "min", "umax", "umin") and not type.is_float and type.element != "i1":
            sign = "ui" if kind.startswith("u") else "si"
            return f"{kind.removeprefix('u')}{sign}_{type.element}({old}, {value})"
        raise UnsupportedOperation(f"tt.atomic_rmw {kind} on {type.element}")


KINDS = "and or xor add fadd max min umax umin exch"
ORDERS = "relaxed acquire release acq_rel cta gpu sys"
OPERATIONS = (
    OpDef("tt.atomic_rmw", [2, 3], atomic_rmw, keywords(f"{KINDS} {ORDERS}"), flows=no_flows, count=count_mask(2),
          synchronises=lambda op: True),
    OpDef("tt.atomic_cas", [3], atomic_cas, keywords(ORDERS), flows=no_flows, synchronises=lambda op: True),
)  # fmt: skip
