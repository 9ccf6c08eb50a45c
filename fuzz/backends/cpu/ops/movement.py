"""Defines the operations that only move elements: by an index map where there is one, else by copies."""

from __future__ import annotations

from fuzz.backends.cpu.analysis import affine_rules, mask_boxes
from fuzz.backends.cpu.codegen.index import (
    Coordinate,
    Index,
    IndexMap,
    current_index,
    current_position,
    index_at,
    make_index_function,
    origin,
    parenthesised,
    row_major,
    same_axes,
)
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import LoopNest, Operand, Uniform, View
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend import custom_syntax
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.definition import OpDef, keywords

# index maps


def no_axes(op: Op) -> IndexMap:
    return ()


def without_new_axis(op: Op) -> IndexMap:
    new = op.integer("axis")
    return tuple(Coordinate(axis) for axis in range(len(op.result.type.shape)) if axis != new)


def first_of_repeated(op: Op) -> IndexMap:
    sizes = zip(op.operands[0].type.shape, op.result.type.shape, strict=True)
    return tuple(Coordinate(axis if old == new else None) for axis, (old, new) in enumerate(sizes))


def permute_axes(op: Op) -> IndexMap:
    order = op.integers("order")
    return tuple(Coordinate(order.index(axis)) for axis in range(len(order)))


# lowering


def make_range(lowering: Lowering, op: Op) -> None:
    start = op.integer("start")

    def element(index: Index, loop: LoopNest | None) -> str:
        return f"({index[0]} + {start})" if start else parenthesised(index[0])

    lowering.values[op.result] = View(op.result.type, element)


def splat(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    constant = source.constant if isinstance(source, Uniform) else None
    lowering.values[op.result] = Uniform(op.result.type, source.at((), None), constant)


def unsplat(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    lowering.end_loop()
    lowering.bind_scalar(op.result, source.at(origin(source.type.shape), None))


def reshape(lowering: Lowering, op: Op) -> None:
    """Row-major, also where the kernel allows any order. Unit dimensions cost nothing."""
    source = lowering.operand(op.operands[0])
    old, new = source.type.shape, op.result.type.shape
    if isinstance(source, Uniform):
        lowering.values[op.result] = Uniform(op.result.type, source.text, source.constant)
    elif without_units(old) == without_units(new):
        kept = iter([axis for axis, size in enumerate(new) if size != 1])
        index_map = tuple(Coordinate(None if size == 1 else next(kept)) for size in old)
        lowering.bind_view(op.result, source, make_index_function(index_map))
    else:
        lowering.bind_view(op.result, lowering.materialise(source), lambda i: index_at(row_major(i, new), old))


def without_units(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def join(lowering: Lowering, op: Op) -> None:
    first, second = lowering.operands(op)

    def element(index: Index, loop: LoopNest | None) -> str:
        rest, which = index[:-1], index[-1]
        if isinstance(which, int):
            return (first, second)[which].at(rest, loop)
        return f"({which} ? {second.at(rest, loop)} : {first.at(rest, loop)})"

    sources = [(source, lambda index: index[:-1]) for source in (first, second)]
    lowering.values[op.result] = View(op.result.type, element, sources)


def split(lowering: Lowering, op: Op) -> None:
    source = lowering.operand(op.operands[0])
    for half, result in enumerate(op.results):
        index_map = (*same_axes(len(result.type.shape)), Coordinate(start=half))
        lowering.bind_view(result, source, make_index_function(index_map))


def both_halves(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    return outputs * 2


def cat(lowering: Lowering, op: Op) -> None:
    first, second = lowering.operands(op)
    type = op.result.type
    if len(type.shape) != 1:
        raise UnsupportedOperation("tt.cat of more than one dimension")
    both = lowering.array(type, op.result.name)
    copy_into(lowering, both.name, first, 0)
    copy_into(lowering, both.name, second, first.type.count)
    lowering.end_loop()
    lowering.values[op.result] = both


def copy_into(lowering: Lowering, array: str, source: Operand, start: int) -> None:
    position = current_position(source.type.shape)
    lowering.for_each_lane(source.type.shape, [source], lambda text: f"{array}[{position} + {start}] = {text[0]};", "")


def gather(lowering: Lowering, op: Op) -> None:
    """Indexes outside of the source are undefined on a GPU; here they wrap, so that no other memory is read."""
    axis = op.integer("axis")
    source = lowering.materialise(lowering.operand(op.operands[0]))
    chosen = lowering.operand(op.operands[1])
    shape = source.type.shape
    if len(shape) != len(op.result.type.shape):
        raise UnsupportedOperation("tt.gather between ranks")

    def compute(texts: list[str]) -> str:
        index = list(current_index(op.result.type.shape))
        index[axis] = f"(u32){texts[0]} % {shape[axis]}"
        return source.at(tuple(index), None)

    lowering.elementwise(op.result, [chosen], compute)


def histogram(lowering: Lowering, op: Op) -> None:
    """Counts per bin; a value that is no bin is undefined on a GPU and not counted here."""
    operands = lowering.operands(op)
    type = op.result.type
    counts = lowering.array(type, op.result.name)
    lowering.assign(counts, Uniform(type, "0"))
    lowering.end_loop()
    name, bins = counts.name, type.shape[0]

    def compute(texts: list[str]) -> str:
        wanted = f"{texts[1]} && " if len(texts) > 1 else ""
        value = f"({operands[0].type.unsigned}){texts[0]}"
        return f"if ({wanted}{value} < {bins}) {name}[{value}]++;"

    lowering.for_each_lane(operands[0].type.shape, operands, compute, "")
    lowering.end_loop()
    lowering.values[op.result] = counts


RESHAPE_HINTS = {"allow_reorder": None, "efficient_layout": None}
OPERATIONS = (
    OpDef("tt.broadcast", [1], index_map=first_of_repeated),
    OpDef("tt.expand_dims", [1], index_map=without_new_axis, attributes={"axis": None}),
    OpDef("tt.trans", [1], index_map=permute_axes, attributes={"order": None}),
    OpDef("tt.splat", [1], splat, index_map=no_axes, mask_box=mask_boxes.splat),
    OpDef("tt.make_range", [0], make_range, attributes={"start": None, "end": None}, affine=affine_rules.make_range),
    OpDef("tt.unsplat", [1], unsplat),
    OpDef(
        "tt.reshape", [1], reshape, keywords("allow_reorder efficient_layout"), RESHAPE_HINTS, keeps_value=True
    ),
    OpDef("tt.join", [2], join),
    OpDef("tt.split", [1], split, result_types=both_halves),
    OpDef("tt.cat", [2], cat),
    OpDef(
        "tt.gather", [2], gather, keywords("efficient_layout"), {"axis": None, "efficient_layout": None},
        parse=custom_syntax.gather,
    ),
    OpDef("tt.histogram", [1, 2], histogram),
)  # fmt: skip
