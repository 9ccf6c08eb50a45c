"""Defines the conversions between types, each with one rounding to nearest even unless it says otherwise."""

from __future__ import annotations

from fuzz.backends.cpu.analysis import affine_rules
from fuzz.backends.cpu.codegen.index import IndexMap, same_axes
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import EIGHT_BIT_FLOATS, Type
from fuzz.backends.cpu.ops.definition import OpDef, keywords
from fuzz.backends.cpu.ops.elementwise import FASTMATH, OVERFLOW, elementwise, rounded


def extend_float(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"({type.c}){texts[0]}"


def round_float(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    source, text = types[0], texts[0]
    if op.attributes.get("rounding") == "rtz" and source.size > type.size:
        # No GPU rounds to these towards zero: Triton's own backends refuse it.
        if type.element in EIGHT_BIT_FLOATS and type.element != "f8E5M2":
            raise UnsupportedOperation(f"{op.name} rounding = rtz from {source.element} to {type.element}")
        text = f"cut_f32({text})" if source.element == "f64" else text
        return f"cut_{type.element}({text})" if type.is_narrow else text
    if type.is_narrow:
        return rounded(type, f"odd_f32({text})" if source.element == "f64" else text)
    return f"({type.c}){text}"


def resize_integer(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    source, text = types[0], texts[0]
    if op.name == "arith.trunci" and type.element == "i1":
        return f"(i1)({text} & 1)"
    if op.name == "arith.extsi" and source.element == "i1":
        return f"({type.c})-(i8){text}"
    if op.name == "arith.extui" and source.element != "i1":
        return f"({type.c})({source.unsigned}){text}"
    return f"({type.c}){text}"


def integer_to_float(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    source, text = types[0], texts[0]
    unsigned = op.name == "arith.uitofp"
    if source.element == "i1":
        number = text if unsigned else f"-(i8){text}"
    else:
        number = f"({source.unsigned}){text}" if unsigned else text
    if not type.is_narrow:
        return f"({type.c}){number}"
    # Through a double that is exact, or rounded to odd, so that only the last step rounds.
    wide = f"odd_{'u64' if unsigned else 'i64'}({number})" if source.size == 8 else f"(f64){number}"
    return rounded(type, f"odd_f32({wide})")


def float_to_integer(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    # PTX has no conversion to 8 bits: the compiler converts to 16 and cuts.
    width = max(type.bits, 16)
    target = f"{'i' if op.name == 'arith.fptosi' else 'u'}{width}"
    converted = f"to_{target}_{types[0].c}({texts[0]})"
    return f"(i1)({converted} & 1)" if type.element == "i1" else f"({type.c}){converted}"


def bitcast(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    source, text = types[0], texts[0]
    if source.element == type.element or (source.is_pointer and type.is_pointer):
        return text
    if source.is_pointer or type.is_pointer or source.bits != type.bits:
        raise UnsupportedOperation(f"{op.name} from {source.element} to {type.element}")
    if source.is_float:
        text = f"(i{source.bits})bits_{source.element}({text})"
    return f"{type.element}_bits({text})" if type.is_float else text


def same_index(op: Op) -> IndexMap:
    return same_axes(len(op.result.type.shape))


NON_NEGATIVE = keywords("nneg"), {"nneg": None}
OPERATIONS = (
    OpDef("arith.extf", [1], elementwise(extend_float), attributes=FASTMATH, keeps_value=True),
    OpDef("arith.truncf", [1], elementwise(round_float), attributes=FASTMATH, keeps_value=True),
    OpDef("tt.fp_to_fp", [1], elementwise(round_float), attributes={"rounding": ("rtne", "rtz")}, keeps_value=True),
    OpDef("arith.extsi", [1], elementwise(resize_integer), index_map=same_index, affine=affine_rules.sign_extension),
    OpDef("arith.extui", [1], elementwise(resize_integer), *NON_NEGATIVE, keeps_value=True),
    OpDef("arith.trunci", [1], elementwise(resize_integer), attributes=OVERFLOW, affine=affine_rules.same_value,
          keeps_value=True),
    OpDef("arith.index_cast", [1], elementwise(resize_integer), index_map=same_index),
    OpDef("arith.sitofp", [1], elementwise(integer_to_float), keeps_value=True),
    OpDef("arith.uitofp", [1], elementwise(integer_to_float), *NON_NEGATIVE, keeps_value=True),
    OpDef("arith.fptosi", [1], elementwise(float_to_integer), keeps_value=True),
    OpDef("arith.fptoui", [1], elementwise(float_to_integer), keeps_value=True),
    OpDef("arith.bitcast", [1], elementwise(bitcast)),
    OpDef("tt.bitcast", [1], elementwise(bitcast)),
)  # fmt: skip
