"""Loads, stores and atomics, each checked against the view of the argument that its pointer derives from.

A loop with accesses has two texts. The fast one runs where the checks of whole blocks hold, and sets `slow` where a
lane needs a closer look; the slow one then does all lanes again, checks each, and reports. Both may run: loads change
nothing, and stores of the same values change nothing the second time.
"""

from __future__ import annotations

from fuzz.backends.cpu.analysis.offset_overflow import tagged_offset
from fuzz.backends.cpu.analysis.provenance import is_volatile
from fuzz.backends.cpu.codegen.lower import Lowering, lowers
from fuzz.backends.cpu.codegen.operands import Lane, Loop, identity
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.access import Access


@lowers("tt.addptr")
def addptr(lowering: Lowering, op: Op) -> None:
    size = Type(op.result.typed.pointee).size
    scale = "" if size == 1 else f" * {size}"
    if "overflow" in lowering.instruments and tagged_offset(lowering, op, scale):
        return
    lowering.elementwise(op.result, lowering.operands(op), lambda texts: f"{texts[0]} + (i64){texts[1]}{scale}")


@lowers("tt.ptr_to_int", "tt.int_to_ptr")
def same_address(lowering: Lowering, op: Op) -> None:
    """Pointers are held as integers. An access through one made of an integer is checked against the arguments that the
    integer was computed from, and refused where it comes from memory."""
    lowering.bind_view(op.result, lowering.operand(op.operands[0]), lambda index: index)


@lowers("tt.load")
def load(lowering: Lowering, op: Op) -> None:
    mask = op.operands[1] if len(op.operands) > 1 else None
    access = Access(lowering, op.operands[0], "load", mask, waits=is_volatile(op))
    operands = lowering.operands(op)
    if access.waits and lowering.synchronises:
        lowering.statement("run->exempt = 1;")
    if not access.shape:
        lowering.elementwise(op.result, operands, lambda texts: slow_load(access, texts), "load")
        return
    loop = lowering.loop_for(access.shape, operands, "load")
    texts = [operand.at(identity(access.shape), loop) for operand in operands]
    lane = Lane(op.result.typed, lowering.names.pick(op.result.name), loop)
    lowering.arrays.append(lane)
    lowering.into(loop, lane, slow_load(access, texts))
    loop.fast[len(loop.lines) - 1] = fast_load(access, loop, texts)
    lowering.values[op.result] = lane


def slow_load(access: Access, texts: list[str]) -> str:
    """The expression of one lane, which reports what is wrong with it."""
    address, element = texts[0], access.element
    other = texts[2] if len(texts) > 2 else "0"
    if access.plain:
        text = f"{access.inside(address)} ? {loaded(access, address)} : {access.outside(address, f'_{element}')}"
        return text if len(texts) == 1 else f"{texts[1]} ? ({text}) : {other}"
    seen = access.unwritten("address") + overtaken(access) + f"value = {loaded(access, 'address')};"
    body = f"{access.untagged()}if ({access.inside('address')}) {{ {seen} }}"
    body += f" else value = {access.outside('address', f'_{element}')};"
    mask = f"if ({texts[1]}) " if len(texts) > 1 else ""
    return f"({{ i64 address = {address}; {access.type.c} value = {other}; {mask}{{ {body} }} value; }})"


def loaded(access: Access, address: str) -> str:
    """What is in memory. A scalar may be what a program waits for: where there are threads, it is read every time."""
    if access.shape or not access.has("threads"):
        return f"load_{access.element}({address})"
    word = f"u{8 * access.size}"
    read = f"const {word} before = __atomic_load_n((const {word} *)({address}), __ATOMIC_ACQUIRE);"
    return f"({{ {read} load_{access.element}((i64)&before); }})"


def overtaken(access: Access) -> str:
    """Note the load, and report it if another program stored what it reads."""
    if not access.raced:
        return ""
    owner, reader = access.tag_place("address", "owner"), access.tag_place("address", "reader")
    synchronises = int(access.lowering.synchronises)
    check = f"if (get_tag({owner})) overtake(run, {access.number}, address, {access.lane}, get_tag({owner}));"
    return f"{check} set_tag({reader}, joint(get_tag({reader}), own_tag(run), {synchronises})); "


def fast_load(access: Access, loop: Loop, texts: list[str]) -> tuple[list[str], str]:
    """Statements and the expression of one lane, which only notes that something may be wrong."""
    proved, name = access.proof(loop), access.lowering.names.pick(f"p{access.number}")
    mask = texts[1] if len(texts) > 1 else "1"
    lines = [f"const i64 {name} = {proved or texts[0]};", f"const int {name}_on = {mask};"]
    if proved is None:
        lines[1] = f"const int {name}_on = ({mask}) && {access.inside(name)};"
        lines.append(f"slow |= ({mask}) && !{name}_on;")
    if access.watched:
        lines.append(f"slow |= {name}_on && {access.raw(name)} == {access.poison(name)};")
    if access.raced:
        owner, reader = access.tag_place(name, "owner"), access.tag_place(name, "reader")
        synchronises = int(access.lowering.synchronises)
        loop.needs("const u32 tag = own_tag(run);")
        lines.append(f"slow |= {name}_on && get_tag({owner}) != 0 && get_tag({owner}) != tag;")
        lines.append(f"if ({name}_on) set_tag({reader}, joint(get_tag({reader}), tag, {synchronises}));")
    other = texts[2] if len(texts) > 2 else "0"
    value = f"load_{access.element}({name})"
    return lines, value if len(texts) == 1 and proved is not None else f"{name}_on ? {value} : {other}"


@lowers("tt.store")
def store(lowering: Lowering, op: Op) -> None:
    mask = op.operands[2] if len(op.operands) > 2 else None
    access = Access(lowering, op.operands[0], "store", mask)
    operands = lowering.operands(op)
    if not access.shape:
        lowering.effect((), operands, lambda texts: slow_store(access, texts), "store")
        return
    loop = lowering.loop_for(access.shape, operands, "store")
    texts = [operand.at(identity(access.shape), loop) for operand in operands]
    lowering.into(loop, None, slow_store(access, texts))
    loop.fast[len(loop.lines) - 1] = fast_store(access, loop, texts)


def slow_store(access: Access, texts: list[str]) -> str:
    """The statement of one lane, which reports what is wrong with it."""
    address, value = texts[:2]
    mask = f"if ({texts[2]}) " if len(texts) > 2 else ""
    # A scalar may be the flag that another program waits for.
    fence = "" if access.shape or not access.has("threads") else "__atomic_thread_fence(__ATOMIC_RELEASE); "
    if access.plain:
        text = f"if ({access.inside(address)}) {{ {fence}store_{access.element}({address}, {value}); }}"
        return f"{mask}{{ {text} else {access.outside(address)}; }}"
    done = f"{contested(access)}{access.now_written('address')}{fence}store_{access.element}(address, value);"
    body = f"{access.untagged()}if ({access.inside('address')}) {{ {done} }} else {access.outside('address')};"
    return f"{mask}{{ i64 address = {address}; const {access.type.c} value = {value}; {body} }}"


def contested(access: Access) -> str:
    """Report the store if another program stored or loaded something else there, and note it."""
    if not access.contested:
        return ""
    owner = access.tag_place("address", "owner")
    reader = f"get_tag({access.tag_place('address', 'reader')})" if access.raced else "0"
    place = f"{access.number}, address, {access.lane}, {access.size}"
    test = f"contest(run, {place}, bits, get_tag({owner}), {reader});"
    bits = f"u64 bits = 0; store_{access.element}((i64)&bits, value);"
    others = f"get_tag({owner})" + (f" || {reader}" if access.raced else "")
    return f"if ({others}) {{ {bits} {test} }} set_tag({owner}, own_tag(run)); "


def fast_store(access: Access, loop: Loop, texts: list[str]) -> tuple[list[str], str]:
    """Statements and the store of one lane, which leaves to the slow loop what is contested or holds poison."""
    proved, name = access.proof(loop), access.lowering.names.pick(f"p{access.number}")
    mask = texts[2] if len(texts) > 2 else "1"
    lines = [f"const i64 {name} = {proved or texts[0]};", f"int {name}_on = {mask};"]
    if proved is None:
        lines += [f"slow |= {name}_on && !{access.inside(name)};", f"{name}_on = {name}_on && {access.inside(name)};"]
    store = f"store_{access.element}({name}, {texts[1]});"
    if access.watched:
        lines.append(f"slow |= {name}_on && {raw_value(access, texts[1])} == {access.poison(name)};")
    if access.contested:
        owner = access.tag_place(name, "owner")
        loop.needs("const u32 tag = own_tag(run);")
        other = f"(get_tag({owner}) != 0 && get_tag({owner}) != tag)"
        if access.raced:
            reader = f"get_tag({access.tag_place(name, 'reader')})"
            other = f"({other} || ({reader} != 0 && {reader} != tag))"
        lines += [f"const int {name}_other = {name}_on && {other};", f"slow |= {name}_other;"]
        lines.append(f"{name}_on = {name}_on && !{name}_other;")
        store += f" set_tag({owner}, tag);"
    return lines, f"if ({name}_on) {{ {store} }}"


def raw_value(access: Access, value: str) -> str:
    """The bits that a store of the value writes."""
    return f"(u{8 * access.size})" + (f"bits_{access.element}({value})" if access.type.is_float else f"({value})")
