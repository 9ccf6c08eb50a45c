"""Operations that act on each element alone: one C expression each."""

from __future__ import annotations

import re
from collections.abc import Callable

from fuzz.backends.cpu.analysis.provenance import is_table
from fuzz.backends.cpu.codegen.lower import HANDLERS, Lowering, lowers
from fuzz.backends.cpu.codegen.operands import Lane, Uniform
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.literals import float_bits, literal
from fuzz.backends.cpu.frontend.types import Type
from fuzz.backends.cpu.ops.libdevice import extern_call, math_call

# (operation, operand types, result type, operand texts) -> C expression. Operands may be used once only,
# as they can be long; what needs them twice is a function of the prelude.
Expression = Callable[[Op, list[Type], Type, list[str]], str]
EXPRESSIONS: dict[str, Expression] = {}


def expression(*names: str) -> Callable[[Expression], Expression]:
    def register(function: Expression) -> Expression:
        for name in names:
            EXPRESSIONS[name] = function
            HANDLERS[name] = elementwise
        return function

    return register


def elementwise(lowering: Lowering, op: Op) -> None:
    compute = EXPRESSIONS[op.name]
    types = [operand.typed for operand in op.operands]
    lowering.elementwise(op.result, lowering.operands(op), lambda texts: compute(op, types, op.result.typed, texts))


def rounded(type: Type, text: str) -> str:
    """Floats of 8 and 16 bits round after every operation."""
    return f"round_{type.element}({text})" if type.is_narrow else text


@lowers("arith.constant")
def constant(lowering: Lowering, op: Op) -> None:
    type, text = op.result.typed, str(op.attributes["value"])
    if is_table(op):
        lowering.values[op.result] = table(lowering, type, text)
    else:
        lowering.values[op.result] = Uniform(type, literal(text, type.element))


def table(lowering: Lowering, type: Type, text: str) -> Lane:
    """A constant of several values: numbers in nested brackets, or all bytes as one hexadecimal string."""
    if text.startswith('"'):
        raw, size = bytes.fromhex(text.strip('"').removeprefix("0x")), type.size
        words = [int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]
        values = [float_bits(w, type.element) if type.is_float else literal(str(w), type.element) for w in words]
    else:
        values = [literal(number, type.element) for number in re.findall(r"[^\s,\[\]]+", text)]
    name = lowering.names.pick("table")
    lowering.statement(f"static const {type.c} {name}[] = {{{', '.join(values)}}};")
    return Lane(type, name, None, kept=True)


@lowers("ub.poison")
def poison(lowering: Lowering, op: Op) -> None:
    lowering.values[op.result] = Uniform(op.result.typed, "0")


FLOAT_OPERATORS = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/"}


@expression(*(f"arith.{name}" for name in FLOAT_OPERATORS), "tt.precise_divf")
def float_operator(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    operator = FLOAT_OPERATORS.get(op.name.split(".")[1], "/")
    return rounded(type, f"{texts[0]} {operator} {texts[1]}")


@expression("arith.negf")
def negate(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"-{texts[0]}"


INTEGER_OPERATORS = {"addi": "+", "subi": "-", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}
# On one bit, sums are exclusive or, products are and; signed `true` is -1.
BIT_OPERATORS = {"addi": "^", "subi": "^", "muli": "&", "maxsi": "&", "minsi": "|", "maxui": "|", "minui": "&"}


@expression(*(f"arith.{name}" for name in INTEGER_OPERATORS))
def integer_operator(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1]
    operator = BIT_OPERATORS.get(name) if type.element == "i1" else None
    return f"({type.c})({texts[0]} {operator or INTEGER_OPERATORS[name]} {texts[1]})"


@expression(*(f"arith.{s}{u}" for s in ("div", "rem", "max", "min") for u in ("si", "ui")))
@expression("arith.shli", "arith.shrsi", "arith.shrui", "tt.mulhiui")
def integer_function(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1]
    if type.element == "i1":
        if name not in BIT_OPERATORS:
            raise UnsupportedOperation(f"{op.name} on i1")
        return f"({texts[0]} {BIT_OPERATORS[name]} {texts[1]})"
    if name == "mulhiui" and type.size < 4:
        raise UnsupportedOperation(f"{op.name} on {type.element}")
    return f"{name}_{type.element}({', '.join(texts)})"


@expression("math.absi")
def absolute_integer(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return texts[0] if type.element == "i1" else f"absi_{type.element}({texts[0]})"


@expression("arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf")
def float_extreme(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"{op.name.split('.')[1]}_{type.c}({', '.join(texts)})"


@expression("tt.clampf")
def clamp(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    value, low, high = texts
    kind = "imum" if op.attributes.get("propagateNan") == "all" else "num"
    return f"min{kind}f_{type.c}(max{kind}f_{type.c}({value}, {low}), {high})"


@expression("arith.remf")
def remainder(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return rounded(type, f"remf_{type.c}({texts[0]}, {texts[1]})")


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@expression("arith.cmpi")
def compare_integers(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    predicate = op.words[0]
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


@expression("arith.cmpf")
def compare_floats(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    predicate = op.words[0]
    first, second = texts
    if predicate in ("ord", "uno", "one", "ueq"):
        return f"{predicate}_{types[0].c}({first}, {second})"
    if predicate[0] == "o" or predicate == "une":
        return f"(i1)({first} {COMPARISONS[predicate[1:]]} {second})"
    negated = {"lt": ">=", "le": ">", "gt": "<=", "ge": "<"}[predicate[1:]]
    return f"(i1)!({first} {negated} {second})"


@expression("arith.select")
def select(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return f"{texts[0]} ? {texts[1]} : {texts[2]}"


@expression("math.fma")
def fused(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    if type.is_narrow:
        # The product of two 16-bit floats is exact in double; the sum is rounded to odd, then once to 16 bits.
        return f"round_{type.element}(odd_f32(odd_fma({', '.join(texts)})))"
    return f"{'fma' if type.element == 'f64' else 'fmaf'}({', '.join(texts)})"


@expression("math.ctpop", "math.ctlz")
def count_bits(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    if type.size < 4:
        raise UnsupportedOperation(f"{op.name} on {type.element}")
    long = "ll" if type.element == "i64" else ""
    if op.name == "math.ctpop":
        return f"({type.c})__builtin_popcount{long}({texts[0]})"
    return f"({type.c})leading_{type.element}({texts[0]})"


UNARY = "absf exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan sqrt rsqrt erf tanh floor ceil round roundeven"
UNARY += " trunc cbrt asin acos atan sinh cosh asinh acosh atanh"


@expression(*(f"math.{name}" for name in UNARY.split()), "math.powf", "math.atan2", "math.copysign")
@expression("tt.precise_sqrt")
def mathematics(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    name = op.name.split(".")[1].removeprefix("precise_")
    return rounded(type, math_call(name, type.c, texts))


@expression("tt.extern_elementwise")
def extern(op: Op, types: list[Type], type: Type, texts: list[str]) -> str:
    return extern_call(str(op.attributes["symbol"]), types, type, texts)
