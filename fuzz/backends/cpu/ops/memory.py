"""Defines loads and stores, each checked against the view of the argument that its pointer derives from.

A loop with accesses has two versions. The fast one runs where the checks of whole blocks hold, and sets `slow` where a
lane needs a closer look; the slow one then does all lanes again, checks each, and reports. Both may run: loads change
nothing, and stores of the same values change nothing the second time.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.backends.cpu.analysis import affine_rules
from fuzz.backends.cpu.analysis.offset_overflow import lower_tagged_offset
from fuzz.backends.cpu.codegen.coverage_counters import count_mask
from fuzz.backends.cpu.codegen.index import current_index
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import FastPath, LoopNest
from fuzz.backends.cpu.frontend.ir import Attribute, Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.access import CheckedAccess
from fuzz.backends.cpu.ops.definition import OpDef, no_flows, no_results


def addptr(lowering: Lowering, op: Op) -> None:
    size = Type(op.result.type.pointee).size
    scale = "" if size == 1 else f" * {size}"
    if "overflow" in lowering.instruments and lower_tagged_offset(lowering, op, scale):
        return
    lowering.elementwise(op.result, lowering.operands(op), lambda texts: f"{texts[0]} + (i64){texts[1]}{scale}")


def same_address(lowering: Lowering, op: Op) -> None:
    """Pointers are held as integers. An access through one made of an integer is checked against the arguments that the
    integer was computed from, and refused where it comes from memory."""
    lowering.bind_view(op.result, lowering.operand(op.operands[0]), lambda index: index)


def is_volatile(op: Op) -> bool:
    """A load that must see what other programs store meanwhile."""
    return op.attributes.get("isVolatile") is True


def load(lowering: Lowering, op: Op) -> None:
    mask = op.operands[1] if len(op.operands) > 1 else None
    access = CheckedAccess(lowering, op.operands[0], "load", mask, waits=is_volatile(op), moved=op.result)
    operands = lowering.operands(op)
    if access.waits and lowering.synchronises:
        lowering.add("run->exempt = 1;")
    if not access.shape:
        lowering.elementwise(op.result, operands, lambda texts: slow_load(access, with_bits(op, texts)), "load")
        return
    loop = lowering.loop_for(access.shape, operands, "load")
    texts = with_bits(op, [operand.at(current_index(access.shape), loop) for operand in operands])
    name = lowering.identifiers.pick(op.result.name)
    statement = lowering.add_lane(op.result, name, loop, slow_load(access, texts))
    statement.fast = fast_load(access, loop, texts)


def with_bits(op: Op, texts: list[str]) -> list[str]:
    """The texts of a load's operands, the last of which, where lanes are off, has the type of the result."""
    if len(texts) < 3 or (source := op.operands[2].type.element) == op.result.type.element:
        return texts
    return [*texts[:2], f"({op.result.type.c})bits_{source}({texts[2]})"]


def slow_load(access: CheckedAccess, texts: list[str]) -> str:
    """The expression of one lane, which reports what is wrong with it."""
    address, element = texts[0], access.element
    other = texts[2] if len(texts) > 2 else "0"
    if access.checks_bounds_only:
        text = f"{access.inside(address)} ? load_{element}({address}) : {access.outside(address, f'_{element}')}"
        return text if len(texts) == 1 else f"{texts[1]} ? ({text}) : {other}"
    seen = access.report_unwritten("address") + report_race(access) + f"value = load_{element}(address);"
    body = f"{access.report_overflow()}if ({access.inside('address')}) {{ {seen} }}"
    body += f" else value = {access.outside('address', f'_{element}')};"
    mask = f"if ({texts[1]}) " if len(texts) > 1 else ""
    return f"({{ i64 address = {address}; {access.type.c} value = {other}; {mask}{{ {body} }} value; }})"


def report_race(access: CheckedAccess) -> str:
    """Notes the load, and reports it if another program stored what it reads."""
    if not access.checks_races:
        return ""
    owner, reader = access.tag_address("address", "owner"), access.tag_address("address", "reader")
    synchronises = int(access.lowering.synchronises)
    check = f"if (get_tag({owner})) check_load(run, {access.site}, address, {access.lane}, get_tag({owner}));"
    return f"{check} set_tag({reader}, merge_readers(get_tag({reader}), own_tag(run), {synchronises})); "


def fast_load(access: CheckedAccess, loop: LoopNest, texts: list[str]) -> FastPath:
    """Statements and the expression of one lane, which only notes that something may be wrong."""
    proved, name = access.prove_block(loop), access.lowering.identifiers.pick(f"p{access.site}")
    mask = texts[1] if len(texts) > 1 else "1"
    lines = [f"const i64 {name} = {proved or texts[0]};", f"const int {name}_on = {mask};"]
    if proved is None:
        lines[1] = f"const int {name}_on = ({mask}) && {access.inside(name)};"
        lines.append(f"slow |= ({mask}) && !{name}_on;")
    if access.checks_unwritten:
        lines.append(f"slow |= {name}_on && {access.loaded_bits(name)} == {access.poison(name)};")
    if access.checks_races:
        owner, reader = access.tag_address(name, "owner"), access.tag_address(name, "reader")
        synchronises = int(access.lowering.synchronises)
        loop.add_before("const u32 tag = own_tag(run);")
        lines.append(f"slow |= {name}_on && get_tag({owner}) != 0 && get_tag({owner}) != tag;")
        lines.append(f"if ({name}_on) set_tag({reader}, merge_readers(get_tag({reader}), tag, {synchronises}));")
    other = texts[2] if len(texts) > 2 else "0"
    value = f"load_{access.element}({name})"
    is_masked = len(texts) > 1 or proved is None
    may_retry = proved is None or access.checks_unwritten or access.checks_races
    return FastPath(lines, f"{name}_on ? {value} : {other}" if is_masked else value, may_retry, is_masked)


def store(lowering: Lowering, op: Op) -> None:
    mask = op.operands[2] if len(op.operands) > 2 else None
    access = CheckedAccess(lowering, op.operands[0], "store", mask, moved=op.operands[1])
    operands = lowering.operands(op)
    if not access.shape:
        lowering.for_each_lane((), operands, lambda texts: slow_store(access, texts), "store")
        return
    loop = lowering.loop_for(access.shape, operands, "store")
    texts = [operand.at(current_index(access.shape), loop) for operand in operands]
    statement = lowering.add_to_loop(loop, slow_store(access, texts))
    statement.fast = fast_store(access, loop, texts)


def slow_store(access: CheckedAccess, texts: list[str]) -> str:
    """The statement of one lane, which reports what is wrong with it."""
    address, value = texts[:2]
    mask = f"if ({texts[2]}) " if len(texts) > 2 else ""
    if access.checks_bounds_only:
        text = f"if ({access.inside(address)}) {{ store_{access.element}({address}, {value}); }}"
        return f"{mask}{{ {text} else {access.outside(address)}; }}"
    done = f"{report_conflict(access)}{access.mark_written('address')}store_{access.element}(address, value);"
    body = f"{access.report_overflow()}if ({access.inside('address')}) {{ {done} }} else {access.outside('address')};"
    return f"{mask}{{ i64 address = {address}; const {access.type.c} value = {value}; {body} }}"


def report_conflict(access: CheckedAccess) -> str:
    """Reports the store if another program stored or loaded something else there, and notes it."""
    if not access.checks_conflicts:
        return ""
    owner = access.tag_address("address", "owner")
    reader = f"get_tag({access.tag_address('address', 'reader')})" if access.checks_races else "0"
    place = f"{access.site}, address, {access.lane}, {access.size}"
    test = f"check_store(run, {place}, bits, get_tag({owner}), {reader});"
    pointee = Type(access.pointer.type.pointee)
    if pointee.is_float:
        # Which bits of a NaN arithmetic gives is no difference of values.
        new = "value" if access.type.is_float else f"{pointee.element}_bits(value)"
        numbers = f"const {pointee.c} old = load_{pointee.element}(address), new = {new};"
        test = f"{numbers} if (old == old || new == new) {test}"
    bits = f"u64 bits = 0; store_{access.element}((i64)&bits, value);"
    others = f"get_tag({owner})" + (f" || {reader}" if access.checks_races else "")
    return f"if ({others}) {{ {bits} {test} }} set_tag({owner}, own_tag(run)); "


def fast_store(access: CheckedAccess, loop: LoopNest, texts: list[str]) -> FastPath:
    """Statements and the store of one lane, which leaves to the slow loop what is contested or holds poison."""
    proved, name = access.prove_block(loop), access.lowering.identifiers.pick(f"p{access.site}")
    mask = texts[2] if len(texts) > 2 else "1"
    lines = [f"const i64 {name} = {proved or texts[0]};", f"int {name}_on = {mask};"]
    if proved is None:
        lines += [f"slow |= {name}_on && !{access.inside(name)};", f"{name}_on = {name}_on && {access.inside(name)};"]
    store = f"store_{access.element}({name}, {texts[1]});"
    if access.checks_unwritten:
        lines.append(f"slow |= {name}_on && {stored_bits(access, texts[1])} == {access.poison(name)};")
    if access.checks_conflicts:
        owner = access.tag_address(name, "owner")
        loop.add_before("const u32 tag = own_tag(run);")
        other = f"(get_tag({owner}) != 0 && get_tag({owner}) != tag)"
        if access.checks_races:
            reader = f"get_tag({access.tag_address(name, 'reader')})"
            other = f"({other} || ({reader} != 0 && {reader} != tag))"
        lines += [f"const int {name}_other = {name}_on && {other};", f"slow |= {name}_other;"]
        lines.append(f"{name}_on = {name}_on && !{name}_other;")
        store += f" set_tag({owner}, tag);"
    may_retry = proved is None or access.checks_unwritten or access.checks_conflicts
    return FastPath(lines, f"if ({name}_on) {{ {store} }}", may_retry)


def stored_bits(access: CheckedAccess, value: str) -> str:
    """The bits that a store of the value writes."""
    return f"(u{8 * access.size})" + (f"bits_{access.element}({value})" if access.type.is_float else f"({value})")


def pointee_type(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    return outputs or [type.with_element(type.pointee) for type in inputs[:1] if type.is_pointer]


def pointer_type(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    return outputs or inputs[:1]


CACHE_HINTS: dict[str, Sequence[Attribute] | None] = {
    "cacheModifier": None, "cachePolicy": None, "evictionPolicy": None, "isVolatile": None
}  # fmt: skip
OPERATIONS = (
    OpDef("tt.addptr", [2], addptr, affine=affine_rules.pointer_addition, result_types=pointer_type),
    OpDef("tt.ptr_to_int", [1], same_address),
    OpDef("tt.int_to_ptr", [1], same_address),
    OpDef("tt.load", [1, 2, 3], load, attributes=CACHE_HINTS, result_types=pointee_type, flows=no_flows,
          count=count_mask(1), synchronises=is_volatile),
    OpDef("tt.store", [2, 3], store, attributes=CACHE_HINTS, result_types=no_results, count=count_mask(2)),
)  # fmt: skip
