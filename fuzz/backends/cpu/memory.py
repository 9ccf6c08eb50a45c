"""Loads, stores and atomics, each checked against the view of the argument that its pointer derives from."""

from __future__ import annotations

from collections.abc import Callable

from .errors import UnsupportedOperation
from .ir import Op, Value
from .lower import Lowering, lowers
from .sites import Site
from .types import Type
from .views import Uniform, flat, identity

# (the old value, the operands' texts) -> C expression of what is stored.
NewValue = Callable[[str, list[str]], str]


@lowers("tt.addptr")
def addptr(lowering: Lowering, op: Op) -> None:
    size = Type(op.result.typed.pointee).size
    scale = "" if size == 1 else f" * {size}"
    lowering.elementwise(op.result, lowering.operands(op), lambda texts: f"{texts[0]} + (i64){texts[1]}{scale}")


@lowers("tt.ptr_to_int", "tt.int_to_ptr")
def same_address(lowering: Lowering, op: Op) -> None:
    """Pointers are held as integers. An access through one made of an integer is checked against the arguments that the
    integer was computed from, and refused where it comes from memory."""
    lowering.bind_view(op.result, lowering.operand(op.operands[0]), lambda index: index)


class Access:
    """One site: the C of its bounds check and of what an access outside does."""

    def __init__(self, lowering: Lowering, pointer: Value, kind: str) -> None:
        type = pointer.typed
        self.element = type.pointee
        self.shape = type.shape
        if self.element.startswith("*"):
            raise UnsupportedOperation(f"{kind} of a pointer in memory")
        if not pointer.arguments:
            raise UnsupportedOperation(f"{kind} through a pointer of unknown origin")
        self.size = Type(self.element).size
        self.number = len(lowering.sites)
        self.rooms = [(bound(lowering, argument), room(lowering, argument, self.size))
                      for argument in sorted(pointer.arguments)]  # fmt: skip
        place = lowering.location
        arguments = tuple(sorted(pointer.arguments))
        lowering.sites.append(Site(kind, place.file, place.line, self.shape, arguments, self.size))

    def inside(self, address: str) -> str:
        checks = [f"INSIDE({address}, {base}, {room})" for base, room in self.rooms]
        return checks[0] if len(checks) == 1 else f"({' || '.join(checks)})"

    def outside(self, address: str, value: str = "") -> str:
        lane = flat(identity(self.shape), self.shape)
        return f"outside{value}(run, {self.number}, {address}, {lane})"


def bound(lowering: Lowering, argument: int) -> str:
    return lowering.values[lowering.function.parameters[argument]].at((), None)


def room(lowering: Lowering, argument: int, size: int) -> str:
    """The name of how many places an access of this size has in the argument's view."""
    base = bound(lowering, argument)
    name = f"{base}_room{size}"
    lowering.rooms[name] = f"const u64 {name} = room({base}_length, {size});"
    return name


@lowers("tt.load")
def load(lowering: Lowering, op: Op) -> None:
    access = Access(lowering, op.operands[0], "load")
    element = access.element

    def compute(texts: list[str]) -> str:
        address = texts[0]
        text = f"{access.inside(address)} ? load_{element}({address}) : {access.outside(address, f'_{element}')}"
        if len(texts) == 1:
            return text
        return f"{texts[1]} ? ({text}) : {texts[2] if len(texts) > 2 else '0'}"

    lowering.elementwise(op.result, lowering.operands(op), compute, "load")


@lowers("tt.store")
def store(lowering: Lowering, op: Op) -> None:
    access = Access(lowering, op.operands[0], "store")

    def compute(texts: list[str]) -> str:
        address, value = texts[:2]
        mask = f"if ({texts[2]}) " if len(texts) > 2 else ""
        text = f"if ({access.inside(address)}) store_{access.element}({address}, {value});"
        return f"{mask}{{ {text} else {access.outside(address)}; }}"

    lowering.effect(access.shape, lowering.operands(op), compute, "store")


@lowers("tt.atomic_rmw")
def atomic_rmw(lowering: Lowering, op: Op) -> None:
    access = Access(lowering, op.operands[0], "atomic")
    combined = Combine(op.words[0], op.result.typed)
    update(lowering, op, access, lambda old, texts: combined(old, texts[1]), masked=len(op.operands) > 2)


@lowers("tt.atomic_cas")
def atomic_cas(lowering: Lowering, op: Op) -> None:
    access = Access(lowering, op.operands[0], "atomic")
    type = op.result.typed
    same = equal_bits(type)
    update(lowering, op, access, lambda old, texts: f"{same(old, texts[1])} ? {texts[2]} : {old}", masked=False)


def equal_bits(type: Type) -> Callable[[str, str], str]:
    """Compare and swap compares bits, also of floats."""
    bits = f"bits_{type.element}" if type.is_float else ""
    return lambda first, second: f"{bits}({first}) == {bits}({second})"


def update(lowering: Lowering, op: Op, access: Access, new: NewValue, masked: bool) -> None:
    """Lane by lane: read the old value, write the new one; the old one is the result, 0 where masked off."""
    type = op.result.typed
    old = lowering.names.pick(f"{op.result.name or 'atomic'}")
    operands = lowering.operands(op)
    lowering.close()
    target = lowering.array(type, old) if type.is_tensor else None
    if target is None:
        lowering.statement(f"{type.c} {old};")
    place = target.at(identity(type.shape), None) if target else old

    def compute(texts: list[str]) -> str:
        address = texts[0]
        wanted = f"!({texts[2]})" if masked else "0"
        swap = f"{place} = load_{access.element}({address}); store_{access.element}({address}, {new(place, texts)});"
        refused = f"{place} = {access.outside(address, f'_{access.element}')};"
        return f"if ({wanted}) {place} = 0; else if ({access.inside(address)}) {{ {swap} }} else {refused}"

    lowering.effect(access.shape, operands, compute, "atomic")
    lowering.close()
    lowering.values[op.result] = target or Uniform(type, old)


class Combine:
    """The new value that a read-modify-write stores."""

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
