"""Matrix products, accumulated element after element in the type of the accumulator."""

from __future__ import annotations

from .errors import UnsupportedOperation
from .ir import Op
from .lower import Lowering, lowers
from .types import Type
from .views import Lane, Operand, View


@lowers("tt.dot")
def dot(lowering: Lowering, op: Op) -> None:
    first, second, initial = lowering.operands(op)
    type = op.result.typed
    check_types(first.type, second.type, type)
    if op.attributes.get("inputPrecision") == "tf32" and first.type.element == "f32":
        first, second = rounded_operand(first), rounded_operand(second)
    left, right = lowering.materialise(first, "left"), lowering.materialise(second, "right")
    total = lowering.array(type, lowering.names.pick(op.result.name))
    lowering.assign(total, initial)
    lowering.close()
    for line in product(left, right, total):
        lowering.statement(line)
    lowering.values[op.result] = total


def check_types(first: Type, second: Type, result: Type) -> None:
    if first.is_float != result.is_float or first.element != second.element:
        raise UnsupportedOperation(f"tt.dot of {first.element} and {second.element} into {result.element}")


def rounded_operand(operand: Operand) -> Operand:
    """The operand as a tensor core reads it, if the run asks for that."""
    return View(
        operand.type,
        lambda index, loop: f"(run->tf32 ? round_tf32({operand.at(index, loop)}) : {operand.at(index, loop)})",
        [(operand, lambda index: index)],
    )


def product(left: Lane, right: Lane, total: Lane) -> list[str]:
    """Loops in the order i, k, j: rows of the right operand are read in their order in memory."""
    *batch, rows, columns = total.type.shape
    depth = left.type.shape[-1]
    c, element = total.type.c, total.type.element
    term = f"scale * ({c})right_row[j]"
    added = f"round_{element}(row[j] + {term})" if total.type.is_narrow else f"row[j] + {term}"
    return [
        f"for (int z = 0; z < {batch[0] if batch else 1}; z++)",
        f"for (int i = 0; i < {rows}; i++)",
        f"for (int k = 0; k < {depth}; k++) {{",
        f"const {c} scale = ({c}){left.array}[(z * {rows} + i) * {depth} + k];",
        f"const {right.type.c} *right_row = {right.array} + (z * {depth} + k) * {columns};",
        f"{c} *row = {total.array} + (z * {rows} + i) * {columns};",
        "INDEPENDENT",
        f"for (int j = 0; j < {columns}; j++) row[j] = {added};",
        "}",
    ]
