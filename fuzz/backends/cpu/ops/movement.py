"""Operations that only move elements: views where an index can be rewritten, copies where it cannot."""

from __future__ import annotations

from fuzz.backends.cpu.codegen.lower import Lowering, lowers
from fuzz.backends.cpu.codegen.operands import Index, Loop, Operand, Uniform, View, flat, identity
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op, Value


@lowers("tt.make_range")
def make_range(lowering: Lowering, op: Op) -> None:
    start = op.integer("start")

    def fetch(index: Index, loop: Loop | None) -> str:
        return f"({index[0]} + {start})" if start else parenthesised(index[0])

    lowering.values[op.result] = View(op.result.typed, fetch)


def parenthesised(text: str) -> str:
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


@lowers("tt.splat")
def splat(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    lowering.values[op.result] = Uniform(op.result.typed, source.at((), None))


@lowers("tt.unsplat")
def unsplat(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    lowering.close()
    text = source.at(tuple("0" for _ in source.type.shape), None)
    lowering.values[op.result] = lowering.declare(op.result.typed, lowering.names.pick(op.result.name), text)


@lowers("tt.expand_dims")
def expand_dims(lowering: Lowering, op: Op) -> None:
    axis = op.integer("axis")
    lowering.bind_view(op.result, lowering.operand(op.operands[0]), lambda i: i[:axis] + i[axis + 1 :])


@lowers("tt.broadcast")
def broadcast(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    shape = source.type.shape

    def remap(index: Index) -> Index:
        return tuple("0" if size == 1 else position for position, size in zip(index, shape, strict=True))

    lowering.bind_view(op.result, source, remap)


@lowers("tt.trans")
def trans(lowering: Lowering, op: Op) -> None:
    order = op.attributes["order"]
    assert isinstance(order, list)
    back = [order.index(axis) for axis in range(len(order))]
    lowering.bind_view(op.result, lowering.operand(op.operands[0]), lambda i: tuple(i[axis] for axis in back))


@lowers("tt.reshape")
def reshape(lowering: Lowering, op: Op) -> None:
    """Row-major, also where the kernel allows any order. Unit dimensions cost nothing."""
    source = lowering.operand(op.operands[0])
    old, new = source.type.shape, op.result.typed.shape
    if isinstance(source, Uniform):
        lowering.values[op.result] = Uniform(op.result.typed, source.text)
    elif squeezed(old) == squeezed(new):
        kept = [axis for axis, size in enumerate(new) if size != 1]

        def remap(index: Index) -> Index:
            positions = iter(kept)
            return tuple("0" if size == 1 else index[next(positions)] for size in old)

        lowering.bind_view(op.result, source, remap)
    else:
        lowering.bind_view(op.result, lowering.materialise(source), lambda i: unflat(flat(i, new), old))


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def unflat(position: str, shape: tuple[int, ...]) -> Index:
    """The index in a shape of a row-major position."""
    if len(shape) == 1:
        return (position,)
    index, stride = [], 1
    for axis, size in reversed(list(enumerate(shape))):
        text = f"({position})" if stride == 1 else f"({position}) / {stride}"
        index.append("0" if size == 1 else text if axis == 0 else f"{text} % {size}")
        stride *= size
    return tuple(reversed(index))


@lowers("tt.join")
def join(lowering: Lowering, op: Op) -> None:
    first, second = lowering.operands(op)

    def fetch(index: Index, loop: Loop | None) -> str:
        rest, which = index[:-1], index[-1]
        if which.isdecimal():
            return (first, second)[int(which)].at(rest, loop)
        return f"({which} ? {second.at(rest, loop)} : {first.at(rest, loop)})"

    sources = [(source, lambda index: index[:-1]) for source in (first, second)]
    lowering.values[op.result] = View(op.result.typed, fetch, sources)


@lowers("tt.split")
def split(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    for half, result in enumerate(op.results):
        bind_half(lowering, result, source, str(half))


def bind_half(lowering: Lowering, result: Value, source: Operand, half: str) -> None:
    lowering.bind_view(result, source, lambda index: (*index, half))


@lowers("tt.cat")
def cat(lowering: Lowering, op: Op) -> None:
    first, second = lowering.operands(op)
    type = op.result.typed
    if len(type.shape) != 1:
        raise UnsupportedOperation("tt.cat of more than one dimension")
    both = lowering.array(type, lowering.names.pick(op.result.name))
    copy_into(lowering, both.name, first, 0)
    copy_into(lowering, both.name, second, first.type.count)
    lowering.close()
    lowering.values[op.result] = both


def copy_into(lowering: Lowering, array: str, source: Operand, start: int) -> None:
    lowering.effect(source.type.shape, [source], lambda text: f"{array}[d0 + {start}] = {text[0]};", "")


@lowers("tt.gather")
def gather(lowering: Lowering, op: Op) -> None:
    """Indexes outside of the source are undefined on a GPU; here they wrap, so that no other memory is read."""
    axis = op.integer("axis")
    source = lowering.materialise(lowering.operand(op.operands[0]))
    chosen = lowering.operand(op.operands[1])
    shape = source.type.shape
    if len(shape) != len(op.result.typed.shape):
        raise UnsupportedOperation("tt.gather between ranks")

    def compute(texts: list[str]) -> str:
        index = list(identity(op.result.typed.shape))
        index[axis] = f"(u32){texts[0]} % {shape[axis]}"
        return source.at(tuple(index), None)

    lowering.elementwise(op.result, [chosen], compute)


@lowers("tt.histogram")
def histogram(lowering: Lowering, op: Op) -> None:
    """Counts per bin; a value that is no bin is undefined on a GPU and not counted here."""
    operands = lowering.operands(op)
    type = op.result.typed
    counts = lowering.array(type, lowering.names.pick(op.result.name))
    lowering.assign(counts, Uniform(type, "0"))
    lowering.close()
    name, bins = counts.name, type.shape[0]

    def compute(texts: list[str]) -> str:
        wanted = f"{texts[1]} && " if len(texts) > 1 else ""
        return f"if ({wanted}(u32){texts[0]} < {bins}) {name}[{texts[0]}]++;"

    lowering.effect(operands[0].type.shape, operands, compute, "")
    lowering.close()
    lowering.values[op.result] = counts
