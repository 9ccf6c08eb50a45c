"""Defines `tl.dot_scaled`: products of matrices of 4- and 8-bit floats with a scale for each block along K.

Values and scales as in the OCP Microscaling Formats specification 1.0: e2m1 in pairs, the lower half first; e8m0 scales
are powers of two, 255 is NaN. A scale of type float8e4nv belongs to 16 values (nvfp4), else to 32. Each operand is its
value times its scale in float32 (exact but where it over- or underflows); products are summed as in `tl.dot`.
"""

from __future__ import annotations

from fuzz.backends.cpu.codegen.index import Index
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import LoopNest, Operand, View
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend import custom_syntax
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.definition import OpDef
from fuzz.backends.cpu.ops.dot import accumulate

ELEMENTS = {"e2m1": "i8", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "bf16": "bf16", "fp16": "f16"}


def dot_scaled(lowering: Lowering, op: Op) -> None:
    operands = iter(lowering.operands(op))
    sides = []
    for side in ("lhs", "rhs"):
        source = next(operands)
        scale = next(operands) if op.attributes[f"{side}_scaled"] else None
        form = str(op.attributes[side])
        if source.type.element != ELEMENTS[form]:
            raise UnsupportedOperation(f"tt.dot_scaled of {source.type.element} as {form}")
        sides.append(dequantise(side, source, scale, form, op.attributes.get(f"{side}_k_pack") is not False))
    left, right = sides
    accumulate(lowering, op, left, right, next(operands))


def dequantise(side: str, source: Operand, scale: Operand | None, form: str, k_pack: bool) -> Operand:
    """The operand's values in float32; unpacked along K, or along its other dim."""
    packed = form == "e2m1"
    k_axis = -1 if side == "lhs" else -2
    rank = len(source.type.shape)
    pack_axis = (k_axis if k_pack else -3 - k_axis) + rank
    shape = list(source.type.shape)
    shape[pack_axis] *= 1 + packed

    def inner(index: Index) -> Index:
        return tuple(f"({text}) / 2" if packed and axis == pack_axis else text for axis, text in enumerate(index))

    def block(index: Index) -> Index:
        """Scales are [.., M, K / group] and [.., N, K / group]."""
        assert scale is not None
        group = 16 if scale.type.element == "f8E4M3FN" else 32
        return (*index[:-2], index[-3 - k_axis], f"({index[k_axis]}) / {group}")

    def element(index: Index, loop: LoopNest | None) -> str:
        value = source.at(inner(index), loop)
        if packed:
            value = f"e2m1_values[({value}) >> 4 * (({index[pack_axis]}) % 2) & 15]"
        if scale is None:
            return value
        factor = scale.at(block(index), loop)
        return f"({value} * {factor if scale.type.is_float else f'e8m0_value({factor})'})"

    sources = [(source, inner)] if scale is None else [(source, inner), (scale, block)]
    return View(Type("f32", tuple(shape)), element, sources)


FORMATS, BOOLEANS = tuple(ELEMENTS), (True, False)
OPERATIONS = (
    OpDef(
        "tt.dot_scaled", [3, 4, 5], dot_scaled, parse=custom_syntax.scaled_dot,
        attributes={
            "lhs": FORMATS, "rhs": FORMATS, "lhs_scaled": None, "rhs_scaled": None, "fastMath": BOOLEANS,
            "lhs_k_pack": BOOLEANS, "rhs_k_pack": BOOLEANS,
        },
    ),
)  # fmt: skip
