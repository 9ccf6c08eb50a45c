"""Defines reductions, by a halving tree, and scans, in sequence; the region that combines two elements is inlined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fuzz.backends.cpu.codegen.index import origin
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Lane, Uniform
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.ops.definition import OpDef, no_results


def reduce(lowering: Lowering, op: Op) -> None:
    """Element i is combined with element i + h for h = N/2, N/4, ..., 1: an error like that of a GPU's tree. A run that
    permutes reductions (knob `reduction_order`) shuffles the elements first, as combining is to be commutative and
    associative."""
    axis = op.integer("axis")
    arrays = copies(lowering, op)
    shape = arrays[0].type.shape
    extents = before, size, after = collapse_shape(shape, axis)
    if size > 1:
        shuffle(lowering, arrays, extents)
        lowering.add(f"for (int half = {size // 2}; half > 0; half /= 2) {{")
        braces = open_loops(lowering, (("outer", before), ("i", "half"), ("inner", after)))
        combine(lowering, op, arrays, *(position(extents, i) for i in ("i", "i + half", "i")))
        lowering.add(braces + "}")
    for array, result in zip(arrays, op.results, strict=True):
        if result.type.is_tensor:
            lowering.bind_view(result, array, lambda index: (*index[:axis], 0, *index[axis:]))
        else:
            lowering.bind_scalar(result, array.at(origin(shape), None))


def shuffle(lowering: Lowering, arrays: Sequence[Lane], extents: tuple[int, int, int]) -> None:
    """One permutation along the axis for all arrays."""
    calls = [f"shuffle(run->shuffle, {array.array}, sizeof *{array.array}, {', '.join(map(str, extents))});"
             for array in arrays]  # fmt: skip
    lowering.add(f"if (run->shuffle) {{ {' '.join(calls)} }}")


def scan(lowering: Lowering, op: Op) -> None:
    """In sequence from the first element on, or from the last if reversed."""
    axis = op.integer("axis")
    arrays = copies(lowering, op)
    extents = before, size, after = collapse_shape(arrays[0].type.shape, axis)
    if size > 1:
        reverse = op.attributes.get("reverse") is True
        last, now = (f"{size - 1} - step", f"{size - 2} - step") if reverse else ("step", "step + 1")
        braces = open_loops(lowering, (("outer", before), ("step", size - 1), ("inner", after)))
        combine(lowering, op, arrays, *(position(extents, i) for i in (last, now, now)))
        lowering.add(braces or ";")
    lowering.values.update(zip(op.results, arrays, strict=True))


def collapse_shape(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Elements before, along and after the axis: arrays are dense, so three dimensions are enough."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def position(extents: tuple[int, int, int], along: str) -> str:
    """The place in the array of an element of the three dimensions."""
    before, size, after = extents
    row = along if before == 1 else f"outer * {size} + {along}"
    return row if after == 1 else f"({row}) * {after} + inner"


def open_loops(lowering: Lowering, counters: tuple[tuple[str, int | str], ...]) -> str:
    """Opens loops, of which the innermost may run in any order unless it is a scan's; the braces that end them."""
    opened = [(counter, size) for counter, size in counters if size != 1 or counter == "step"]
    for number, (counter, size) in enumerate(opened):
        if number == len(opened) - 1 and counter != "step":
            lowering.add("INDEPENDENT")
        lowering.add(f"for (int {counter} = 0; {counter} < {size}; {counter}++) {{")
    return "}" * len(opened)


def copies(lowering: Lowering, op: Op) -> list[Lane]:
    """Arrays of our own with the operands' values."""
    arrays = []
    for value, result in zip(op.operands, op.results, strict=True):
        source = lowering.operand(value)
        array = lowering.array(source.type, f"{result.name}_tree")
        lowering.assign(array, source)
        arrays.append(array)
    lowering.end_loop()
    return arrays


def combine(lowering: Lowering, op: Op, arrays: Sequence[Lane], left: str, right: str, to: str) -> None:
    """Inline the combine region: elements at `left` and `right` into `to`."""
    block = op.regions[0][0]
    places = [f"{array.array}[{side}]" for side in (left, right) for array in arrays]
    for argument, place in zip(block.arguments, places, strict=True):
        name = lowering.identifiers.pick(argument.name)
        lowering.add(f"const {argument.type.c} {name} = {place};")
        lowering.values[argument] = Uniform(argument.type, name)
    for inner in block.ops[:-1]:
        lowering.lower(inner)
    results = [lowering.scalar(value) for value in block.ops[-1].operands]
    for array, text in zip(arrays, results, strict=True):
        lowering.add(f"{array.array}[{to}] = {text};")


MANY = range(1, 9)
OPERATIONS = (
    OpDef("tt.reduce", MANY, reduce, attributes={"axis": None, "reduction_ordering": ("unordered",)},
          is_per_element=True, keeps_value=True),
    OpDef("tt.scan", MANY, scan, attributes={"axis": None, "reverse": (True, False)}, is_per_element=True),
    OpDef("tt.reduce.return", MANY, result_types=no_results),
    OpDef("tt.scan.return", MANY, result_types=no_results),
)  # fmt: skip
