"""Reductions as a halving tree, scans in sequence. The combine region is inlined."""

from __future__ import annotations

from collections.abc import Sequence

from .ir import Op
from .lower import Lowering, lowers
from .views import Index, Lane, Uniform, flat, identity


@lowers("tt.reduce")
def reduce(lowering: Lowering, op: Op) -> None:
    """Element i is combined with element i + h for h = N/2, N/4, ..., 1: an error like that of a GPU's tree."""
    axis = op.integer("axis")
    arrays = copies(lowering, op)
    shape = arrays[0].type.shape
    if shape[axis] > 1:
        lowering.statement(f"for (int half = {shape[axis] // 2}; half > 0; half /= 2) {{")
        here = whole(shape)
        opened = nest(lowering, {**dict(enumerate(shape)), axis: "half"}, f"d{axis}", independent=True)
        combine(lowering, op, arrays, here, replaced(here, axis, f"d{axis} + half"), here)
        lowering.statement("}" * opened + " }")
    for array, result in zip(arrays, op.results, strict=True):
        if result.typed.is_tensor:
            lowering.bind_view(result, array, lambda index: (*index[:axis], "0", *index[axis:]))
        else:
            name = lowering.names.pick(result.name)
            first = array.at(tuple("0" for _ in shape), None)
            lowering.values[result] = lowering.declare(result.typed, name, first)


@lowers("tt.scan")
def scan(lowering: Lowering, op: Op) -> None:
    """In sequence from the first element on, or from the last if reversed."""
    axis = op.integer("axis")
    arrays = copies(lowering, op)
    shape = arrays[0].type.shape
    size = shape[axis]
    if size > 1:
        here = whole(shape)
        reverse = op.attributes.get("reverse") is True
        before, now = (f"{size - 1} - step", f"{size - 2} - step") if reverse else ("step", "step + 1")
        opened = nest(lowering, {k: n for k, n in enumerate(shape) if k != axis} | {axis: size - 1}, "step")
        to = replaced(here, axis, now)
        combine(lowering, op, arrays, replaced(here, axis, before), to, to)
        lowering.statement("}" * opened)
    lowering.values.update(zip(op.results, arrays, strict=True))


def copies(lowering: Lowering, op: Op) -> list[Lane]:
    """Arrays of our own with the operands' values."""
    arrays = []
    for value, result in zip(op.operands, op.results, strict=True):
        source = lowering.operand(value)
        array = lowering.array(source.type, lowering.names.pick(f"{result.name}_tree"))
        lowering.assign(array, source)
        arrays.append(array)
    lowering.close()
    return arrays


def whole(shape: tuple[int, ...]) -> Index:
    return identity(shape)


def replaced(index: Index, axis: int, text: str) -> Index:
    return (*index[:axis], text, *index[axis + 1 :])


def nest(lowering: Lowering, sizes: dict[int, int | str], last: str, independent: bool = False) -> int:
    """Open loops over the axes, the last with the counter given; how many were opened."""
    opened = 0
    for axis, size in sizes.items():
        counter = "step" if last == "step" and axis == list(sizes)[-1] else f"d{axis}"
        if size == 1:
            continue
        if independent and axis == list(sizes)[-1]:
            lowering.statement("INDEPENDENT")
        lowering.statement(f"for (int {counter} = 0; {counter} < {size}; {counter}++) {{")
        opened += 1
    return opened


def combine(lowering: Lowering, op: Op, arrays: Sequence[Lane], left: Index, right: Index, to: Index) -> None:
    """Inline the combine region: elements at `left` and `right` into `to`."""
    block = op.regions[0][0]
    places = [array.at(side, None) for side in (left, right) for array in arrays]
    for argument, place in zip(block.arguments, places, strict=True):
        name = lowering.names.pick(argument.name)
        lowering.statement(f"const {argument.typed.c} {name} = {place};")
        lowering.values[argument] = Uniform(argument.typed, name)
    for inner in block.ops[:-1]:
        lowering.op(inner)
    results = [lowering.operand(value).at((), None) for value in block.ops[-1].operands]
    for array, text in zip(arrays, results, strict=True):
        place = f"{array.array}[{flat(to, array.type.shape)}]"
        lowering.statement(f"{place} = {text};")
