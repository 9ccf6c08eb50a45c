"""Defines the operations that act on each element alone, by one C expression each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fuzz.backends.cpu.analysis import affine_rules, mask_boxes
from fuzz.backends.cpu.analysis.dataflow import has_many_values
from fuzz.backends.cpu.codegen.coverage_counters import count_select
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Lane, Uniform
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend import custom_syntax
from fuzz.backends.cpu.frontend.ir import Attribute, Op
from fuzz.backends.cpu.frontend.literals import float_bits, literal
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.definition import Lower, OpDef, keywords
from fuzz.backends.cpu.ops.libdevice import extern_call, math_call, needs_libdevice

# (operation, operand types, result type, operand texts) -> C expression. Operands may be used once only,
# as they can be long; what needs them twice is a function of the prelude.
Expression = Callable[[Op, list[Type], Type, list[str]], str]


def elementwise(compute: Expression) -> Lower:
    """Lowers an operation to one expression for each element."""

    def lower(lowering: Lowering, op: Op) -> None:
        types = [operand.type for operand in op.operands]
        lowering.elementwise(op.result, lowering.operands(op), lambda texts: compute(op, types, op.result.type, texts))

    return lower


def rounded(type: Type, text: str) -> str:
    """Floats of 8 and 16 bits round after every operation."""
    return f"round_{type.element}({text})" if type.is_narrow else text


def constant(lowering: Lowering, op: Op) -> None:
    type, text = op.result.type, str(op.attributes["value"])
    if has_many_values(op):
        lowering.values[op.result] = table(lowering, type, text)
    else:
        constant = int(text, 0) if text not in ("true", "false") and not type.is_float else None
        lowering.values[op.result] = Uniform(type, literal(text, type.element), constant)


def table(lowering: Lowering, type: Type, text: str) -> Lane:
    """A constant of several values: numbers in nested brackets, or all bytes as one hexadecimal string."""
    if text.startswith('"'):
        raw, size = bytes.fromhex(text.strip('"').removeprefix("0x")), type.size
        words = [int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]
        values = [float_bits(w, type.element) if type.is_float else literal(str(w), type.element) for w in words]
    else:
        values = [literal(number, type.element) for number in re.findall(r"[^\s,\[\]]+", text)]
    name = lowering.identifiers.pick("table")
    lowering.add(f"static const {type.c} {name}[] = {{{', '.join(values)}}};")
    return Lane(type, name, None, needs_array=True)


def poison(lowering: Lowering, op: Op) -> None:
    lowering.values[op.result] = Uniform(op.result.type, "0", 0)


FLOAT_OPERATORS = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/"}


def float_operator(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    operator = FLOAT_OPERATORS.get(op.name.split(".")[1], "/")
    return rounded(type, f"{texts[0]} {operator} {texts[1]}")


def negate(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"-{texts[0]}"


INTEGER_OPERATORS = {"addi": "+", "subi": "-", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}
# On one bit, sums are exclusive or, products are and; signed `true` is -1.
BIT_OPERATORS = {"addi": "^", "subi": "^", "muli": "&", "maxsi": "&", "minsi": "|", "maxui": "|", "minui": "&"}


def integer_operator(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1]
    operator = BIT_OPERATORS.get(name) if type.element == "i1" else None
    return f"({type.c})({texts[0]} {operator or INTEGER_OPERATORS[name]} {texts[1]})"


def integer_function(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1]
    if type.element == "i1":
        if name not in BIT_OPERATORS:
            raise UnsupportedOperation(f"{op.name} on i1")
        return f"({texts[0]} {BIT_OPERATORS[name]} {texts[1]})"
    if name == "mulhiui" and type.size < 4:
        raise UnsupportedOperation(f"{op.name} on {type.element}")
    return f"{name}_{type.element}({', '.join(texts)})"


def absolute_integer(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return texts[0] if type.element == "i1" else f"absi_{type.element}({texts[0]})"


def float_extreme(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"{op.name.split('.')[1]}_{type.c}({', '.join(texts)})"


def clamp(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    value, low, high = texts
    kind = "imum" if op.attributes.get("propagateNan") == "all" else "num"
    return f"min{kind}f_{type.c}(max{kind}f_{type.c}({value}, {low}), {high})"


def remainder(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return rounded(type, f"remf_{type.c}({texts[0]}, {texts[1]})")


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compare_integers(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    predicate = op.keywords[0]
    cast = ""
    if len(predicate) == 3:
        cast, predicate = predicate[0], predicate[1:]
    if types[0].is_pointer:
        cast = ""
    if cast == "u":
        cast = f"({types[0].unsigned})"
    elif cast == "s":
        cast = "-(i8)" if types[0].element == "i1" else ""
    return f"(i1)({cast}{texts[0]} {COMPARISONS[predicate]} {cast}{texts[1]})"


def compare_floats(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    predicate = op.keywords[0]
    first, second = texts
    if predicate in ("ord", "uno", "one", "ueq"):
        return f"{predicate}_{types[0].c}({first}, {second})"
    if predicate[0] == "o" or predicate == "une":
        return f"(i1)({first} {COMPARISONS[predicate[1:]]} {second})"
    negated = {"lt": ">=", "le": ">", "gt": "<=", "ge": "<"}[predicate[1:]]
    return f"(i1)!({first} {negated} {second})"


def select(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"{texts[0]} ? {texts[1]} : {texts[2]}"


def fused(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    if type.is_narrow:
        # The product of two 16-bit floats is exact in double; the sum is rounded to odd, then once to 16 bits.
        return f"round_{type.element}(odd_f32(odd_fma({', '.join(texts)})))"
    return f"{'fma' if type.element == 'f64' else 'fmaf'}({', '.join(texts)})"


def count_bits(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    if type.size < 4:
        raise UnsupportedOperation(f"{op.name} on {type.element}")
    long = "ll" if type.element == "i64" else ""
    if op.name == "math.ctpop":
        return f"({type.c})__builtin_popcount{long}({texts[0]})"
    return f"({type.c})leading_{type.element}({texts[0]})"


def mathematics(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1].removeprefix("precise_")
    return rounded(type, math_call(name, type.c, texts))


def extern(lowering: Lowering, op: Op) -> None:
    symbol, types = str(op.attributes["symbol"]), [operand.type for operand in op.operands]
    lowering.uses_libdevice |= needs_libdevice(symbol)
    lowering.elementwise(
        op.result, lowering.operands(op), lambda texts: extern_call(symbol, types, op.result.type, texts)
    )


FASTMATH: dict[str, Sequence[Attribute] | None] = {"fastmath": None}
OVERFLOW: dict[str, Sequence[Attribute] | None] = {"overflow": None}
INTEGER_PREDICATES = keywords("eq ne slt sle sgt sge ult ule ugt uge")
FLOAT_PREDICATES = keywords("oeq one olt ole ogt oge ord ueq une ult ule ugt uge uno")
UNARY = "exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan sqrt rsqrt erf tanh floor ceil round roundeven"
UNARY += " trunc cbrt asin acos atan sinh cosh asinh acosh atanh"
AFFINE = {
    "addi": affine_rules.addition, "subi": affine_rules.subtraction, "muli": affine_rules.multiplication,
    "divsi": affine_rules.division, "divui": affine_rules.division, "remsi": affine_rules.division,
    "remui": affine_rules.division, "maxsi": affine_rules.one_of_two, "minsi": affine_rules.one_of_two,
}  # fmt: skip


def predicate_type(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    return [type.with_element("i1") for type in inputs[:1]]


def integer_operation(name: str, compute: Expression) -> OpDef:
    return OpDef(
        f"arith.{name}", [2], elementwise(compute), attributes=OVERFLOW, affine=AFFINE.get(name),
        mask_box=mask_boxes.conjunction if name == "andi" else None, keeps_value=name in ("andi", "ori"),
    )  # fmt: skip


def float_operation(name: str, operands: int, compute: Expression) -> OpDef:
    return OpDef(name, [operands], elementwise(compute), attributes=FASTMATH, keeps_value=name == "math.absf")


OPERATIONS = (
    OpDef("arith.constant", [0], constant, attributes={"value": None}, parse=custom_syntax.constant,
          affine=affine_rules.constant),
    OpDef("ub.poison", [0], poison),
    *(integer_operation(name, integer_operator) for name in INTEGER_OPERATORS),
    *(integer_operation(f"{name}{sign}i", integer_function)
      for name in ("div", "rem", "max", "min") for sign in ("s", "u")),
    *(integer_operation(name, integer_function) for name in ("shli", "shrsi", "shrui")),
    OpDef("tt.mulhiui", [2], elementwise(integer_function)),
    OpDef("math.absi", [1], elementwise(absolute_integer), attributes=FASTMATH, keeps_value=True),
    *(OpDef(f"math.{name}", [1], elementwise(count_bits), attributes=FASTMATH) for name in ("ctpop", "ctlz")),
    *(float_operation(f"arith.{name}", 2, float_operator) for name in FLOAT_OPERATORS),
    OpDef("tt.precise_divf", [2], elementwise(float_operator)),
    float_operation("arith.negf", 1, negate),
    *(float_operation(f"arith.{name}", 2, float_extreme) for name in ("maxnumf", "minnumf", "maximumf", "minimumf")),
    float_operation("arith.remf", 2, remainder),
    OpDef("tt.clampf", [3], elementwise(clamp), attributes={"propagateNan": ("none", "all")}),
    OpDef("arith.cmpi", [2], elementwise(compare_integers), INTEGER_PREDICATES, result_types=predicate_type,
          mask_box=mask_boxes.comparison),
    OpDef("arith.cmpf", [2], elementwise(compare_floats), FLOAT_PREDICATES, FASTMATH, result_types=predicate_type),
    OpDef("arith.select", [3], elementwise(select), affine=affine_rules.one_of_two, count=count_select),
    float_operation("math.fma", 3, fused),
    *(float_operation(f"math.{name}", 1, mathematics) for name in ("absf", *UNARY.split())),
    *(float_operation(f"math.{name}", 2, mathematics) for name in ("powf", "atan2", "copysign")),
    OpDef("tt.precise_sqrt", [1], elementwise(mathematics)),
    OpDef("tt.extern_elementwise", [1, 2, 3], extern,
          attributes={"libname": None, "libpath": None, "pure": None, "symbol": None}),
)  # fmt: skip
