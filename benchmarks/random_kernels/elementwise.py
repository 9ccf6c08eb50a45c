"""Random operations on each element alone."""

from __future__ import annotations

from .draw import Draw, binary, convert, produces
from .dtypes import DTYPES, FLOATS, INTEGERS
from .tree import Expr, Type

WIDE_FLOATS = ("float32", "float64")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def operators(type: Type) -> list[str]:
    """Two operands of the type give one."""
    dtype = type.dtype
    if dtype.kind == "b":
        return ["and", "or", "xor"]
    if dtype.kind == "f":
        names = ["add", "sub", "mul", "add", "sub", "mul", "fdiv"]
        if type.name != "bfloat16":
            # Triton gives the extremes of bfloat16 as float32.
            names += ["min", "max", "min_nan", "max_nan"]
        if type.name in WIDE_FLOATS:
            names += ["div", "div", "mod"]
        return [*names, "div_rn"] if type.name == "float32" else names
    names = ["add", "sub", "mul", "and", "or", "xor", "min", "max", "shl", "shr", "floordiv", "mod"]
    return [*names, "mulhi"] if dtype.bits >= 32 else names


@produces(8)
def operator(draw: Draw, type: Type, depth: int) -> Expr | None:
    op = draw.pick(operators(type))
    right = second(draw, op, type, depth)
    left = draw.expr(type, depth)
    if right.op != "const" and draw.chance(0.3) and type.shape:
        left = stretched(draw, left, type, depth)
    return Expr(op, type, (left, right))


def second(draw: Draw, op: str, type: Type, depth: int) -> Expr:
    """The second operand; a literal only where Triton's promotion keeps the dtype, and nothing undefined is folded."""
    dtype = type.dtype
    if op in ("shl", "shr") and draw.chance(0.5):
        return Expr("const", type, data=(draw.random.randrange(dtype.bits), "full"))
    if op in ("floordiv", "mod") and dtype.kind != "f" and draw.chance(0.4):
        return Expr("const", type, data=(draw.random.randrange(1, 12), "full"))
    if op in ("add", "sub", "mul", "div") and draw.chance(0.2):
        return draw.constant(type, "literal")
    return draw.expr(type, depth)


def stretched(draw: Draw, value: Expr, type: Type, depth: int) -> Expr:
    """A smaller operand that the operator broadcasts by itself."""
    shape = tuple(1 if draw.chance(0.5) else size for size in type.shape)
    if draw.chance(0.3):
        shape = ()
    return Expr("stretch", type, (draw.expr(Type(type.name, shape), depth),))


@produces(4)
def unary(draw: Draw, type: Type, depth: int) -> Expr | None:
    dtype = type.dtype
    if dtype.kind == "b":
        names = ["inv"]
    elif dtype.kind == "f":
        names = ["neg", "abs"]
        if type.name in WIDE_FLOATS:
            names += ["floor", "ceil", "sqrt"]
        if type.name == "float32":
            names.append("sqrt_rn")
    else:
        names = ["neg", "inv", "abs"]
    return Expr(draw.pick(names), type, (draw.expr(type, depth),))


@produces(6)
def compare(draw: Draw, type: Type, depth: int) -> Expr | None:
    if type.name != "int1":
        return None
    of = type.of(draw.dtype())
    op = draw.pick(COMPARISONS)
    right = draw.constant(of, "literal") if of.name != "int1" and draw.chance(0.3) else draw.expr(of, depth)
    return Expr(op, type, (draw.expr(of, depth), right))


@produces(3)
def where(draw: Draw, type: Type, depth: int) -> Expr | None:
    return Expr("where", type, (draw.expr(type.of("int1"), depth), draw.expr(type, depth), draw.expr(type, depth)))


@produces(1)
def fma(draw: Draw, type: Type, depth: int) -> Expr | None:
    if type.dtype.kind != "f":
        return None
    return Expr("fma", type, tuple(draw.expr(type, depth) for _ in range(3)))


@produces(1)
def clamp(draw: Draw, type: Type, depth: int) -> Expr | None:
    """The lower bound is not above the upper one, for which Triton leaves the result open."""
    if type.dtype.kind != "f" or type.name == "bfloat16":
        return None
    bounds = sorted(draw.random.sample((-2.0, -0.25, 0.0, 0.5, 1.0, 100.0), 2))
    ends = tuple(Expr("const", type, data=(bound, "full")) for bound in bounds)
    return Expr("clamp", type, (draw.expr(type, depth), *ends), (draw.chance(0.5),))


@produces(5)
def cast(draw: Draw, type: Type, depth: int) -> Expr | None:
    source = draw.dtype()
    value = draw.expr(type.of(source), depth)
    floats = type.dtype.kind == "f" == DTYPES[source].kind
    narrows = floats and type.dtype.bits < DTYPES[source].bits
    return convert(value, type.name, toward_zero=narrows and draw.chance(0.3)) if source != type.name else None


@produces(2)
def bitcast(draw: Draw, type: Type, depth: int) -> Expr | None:
    """A NaN's bits are nobody's promise: it becomes 0 first."""
    alike = [name for name in (*FLOATS, *INTEGERS) if DTYPES[name].bits == type.dtype.bits and name != type.name]
    if type.dtype.kind == "b":
        return None
    source = type.of(draw.pick(alike))
    if source.dtype.kind != "f":
        return Expr("bitcast", type, (draw.expr(source, depth),))
    value, zero = draw.leaf(source), Expr("const", source, data=(0.0, "full"))
    return Expr("bitcast", type, (Expr("where", source, (binary("eq", value, value, "int1"), value, zero)),))


@produces(1)
def call(draw: Draw, type: Type, depth: int) -> Expr | None:
    if draw.pure or draw.budget < 4:
        return None
    parameters = [draw.dtype() for _ in range(draw.random.randrange(1, 4))]
    function = draw.function(parameters, [type.name], not type.shape and draw.chance(0.5))
    return Expr("call", type, tuple(draw.expr(type.of(name), depth) for name in parameters), (function, 0))
