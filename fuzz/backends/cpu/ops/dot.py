"""Defines matrix products, accumulated element after element along K in the type of the accumulator.

Accumulators of 16 bits are kept in float32 for some products and then rounded, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuzz.backends.cpu.codegen.index import current_index
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Lane, Operand, Uniform, View
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import EIGHT_BIT_FLOATS, Type
from fuzz.backends.cpu.ops.definition import OpDef

NARROW_GROUP = 16
"""How many products a GPU's instruction adds in float32 before it rounds to an accumulator of 16 bits."""
PRODUCTS = {"bf16x3": [(1, 0), (0, 1)], "bf16x6": [(1, 1), (2, 0), (0, 2), (1, 0), (0, 1)]}
"""The products of parts of both operands, but that of the largest."""


def dot(lowering: Lowering, op: Op) -> None:
    """float32 operands are read as the kernel asks: `ieee` as they are, `tf32` (Triton's default) and `tf32x3` cut,
    `bf16x3` and `bf16x6` as sums of bfloat16."""
    first, second, initial = lowering.operands(op)
    check_types(first.type, second.type, op.result.type)
    precision = op.attributes.get("inputPrecision")
    if first.type.element != "f32" or precision in (None, "ieee"):
        accumulate(lowering, op, first, second, initial)
    elif precision == "tf32":
        accumulate(lowering, op, cut_operand(first), cut_operand(second), initial)
    elif precision == "tf32x3":
        three_products(lowering, op, first, second, initial)
    else:
        products_of_parts(lowering, op, PRODUCTS[str(precision)], [first, second], initial)


def check_types(first: Type, second: Type, result: Type) -> None:
    mixed = first.element != second.element and not {first.element, second.element} <= set(EIGHT_BIT_FLOATS)
    if first.is_float != result.is_float or mixed:
        raise UnsupportedOperation(f"tt.dot of {first.element} and {second.element} into {result.element}")


def cut_operand(operand: Operand) -> Operand:
    """The operand as a tensor core reads it."""
    return map_elements(operand, lambda text: f"cut_tf32({text})")


def three_products(lowering: Lowering, op: Op, first: Operand, second: Operand, initial: Operand) -> None:
    """tf32x3 as Triton's pass for NVIDIA splits it: each operand is a rounded part and a rest, of which the tensor core
    cuts the low bits; rest times part, part times rest, NaN becomes 0, part times part, and last the accumulator."""
    left, right = lowering.materialise(first, "left"), lowering.materialise(second, "right")
    result = lowering.array(op.result.type, op.result.name)
    parts = [map_elements(side, lambda text: f"round_tf32({text})") for side in (left, right)]
    rests = [map_elements(side, lambda text: f"cut_tf32({text} - round_tf32({text}))") for side in (left, right)]
    low = accumulate(lowering, op, rests[0], parts[1], Uniform(op.result.type, "0"))
    low = accumulate(lowering, op, parts[0], rests[1], low)
    add_last_product(lowering, op, parts, low, initial, result)


def products_of_parts(
    lowering: Lowering, op: Op, products: Sequence[tuple[int, int]], operands: list[Operand], initial: Operand
) -> None:
    """Each operand is a sum of up to three bfloat16; the pairs in `products` are multiplied, smallest first."""
    left, right = lowering.materialise(operands[0], "left"), lowering.materialise(operands[1], "right")
    result = lowering.array(op.result.type, op.result.name)
    low: Operand = Uniform(op.result.type, "0")
    for first, second in products:
        low = accumulate(lowering, op, bfloat16_part(left, first), bfloat16_part(right, second), low)
    add_last_product(lowering, op, [bfloat16_part(left, 0), bfloat16_part(right, 0)], low, initial, result)


def bfloat16_part(operand: Operand, number: int) -> Operand:
    """The part of a float32 with that number: the nearest bfloat16 of what is left after those before it."""
    return map_elements(operand, lambda text: f"bf16_part({text}, {number})")


def add_last_product(
    lowering: Lowering, op: Op, parts: list[Operand], low: Operand, initial: Operand, result: Lane
) -> None:
    """Adds the product of the large parts to the sum of small products, where NaN becomes 0, then the accumulator."""
    known = map_elements(low, lambda text: f"({text} == {text} ? {text} : 0.0f)")
    high = accumulate(lowering, op, parts[0], parts[1], known)
    here = current_index(result.type.shape)
    lowering.assign(result, map_elements(high, lambda text: f"({text} + {initial.at(here, None)})"))
    lowering.values[op.result] = result


def map_elements(operand: Operand, compute: Callable[[str], str]) -> Operand:
    """The operand with an expression around each element."""
    return View(operand.type, lambda index, loop: compute(operand.at(index, loop)), [(operand, lambda index: index)])


def accumulate(lowering: Lowering, op: Op, first: Operand, second: Operand, initial: Operand) -> Lane:
    """The result: `initial` and the sum of products."""
    left, right = lowering.materialise(first, "left"), lowering.materialise(second, "right")
    type = op.result.type
    total = lowering.array(type, op.result.name)
    lowering.assign(total, initial)
    lowering.end_loop()
    for line in product(left, right, total):
        lowering.add(line)
    lowering.values[op.result] = total
    return total


def product(left: Lane, right: Lane, total: Lane) -> list[str]:
    """Loops in the order i, k, j: rows of the right operand are read in their order in memory. A run that permutes
    reductions goes through k in another order: `k ^ mask` is a permutation, as sizes are powers of two."""
    *batch, rows, columns = total.type.shape
    depth = left.type.shape[-1]
    c, element = total.type.c, total.type.element
    term = f"scale * ({c})right_row[j]"
    group_end = f"(step + 1) % {NARROW_GROUP} == 0 || step + 1 == {depth}"
    rounded = f"if ({group_end}) for (int j = 0; j < {columns}; j++) row[j] = round_{element}(row[j]);"
    return [
        f"for (int z = 0; z < {batch[0] if batch else 1}; z++)",
        f"for (int i = 0; i < {rows}; i++)",
        f"for (int step = 0; step < {depth}; step++) {{",
        f"const int k = step ^ (run->shuffle & {depth - 1});",
        f"const {c} scale = ({c}){left.array}[(z * {rows} + i) * {depth} + k];",
        f"const {right.type.c} *right_row = {right.array} + (z * {depth} + k) * {columns};",
        f"{c} *row = {total.array} + (z * {rows} + i) * {columns};",
        "INDEPENDENT",
        f"for (int j = 0; j < {columns}; j++) row[j] = row[j] + {term};",
        *([rounded] if total.type.is_narrow else []),
        "}",
    ]


OPERATIONS = (
    OpDef("tt.dot", [3], dot,
          attributes={"inputPrecision": ("ieee", "tf32", "tf32x3", *PRODUCTS), "maxNumImpreciseAcc": None}),
)  # fmt: skip
