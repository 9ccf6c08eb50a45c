"""A kernel as the text of a Triton program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isinf, isnan
from typing import Any

from .tree import Atomic, Expr, For, Function, If, Kernel, Let, Statement, Store, Type, While

HEADER = "import triton\nimport triton.language as tl\n\n"
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
PREFIX = {"neg": "-", "inv": "~"}
CALLS = {
    "div_rn": "tl.div_rn", "mulhi": "tl.umulhi", "abs": "tl.abs", "floor": "tl.floor",
    "ceil": "tl.ceil", "sqrt": "tl.sqrt", "sqrt_rn": "tl.sqrt_rn", "where": "tl.where", "fma": "tl.fma",
    "join": "tl.join", "interleave": "tl.interleave", "min": "tl.minimum", "max": "tl.maximum",
}  # fmt: skip
STANDARD = {
    "sum": "tl.sum", "largest": "tl.max", "smallest": "tl.min", "xor_sum": "tl.xor_sum", "argmax": "tl.argmax",
    "argmin": "tl.argmin",
}  # fmt: skip


def text(node: Expr) -> str:
    """An expression, safe inside of any other."""
    args = [text(arg) for arg in node.args]
    if node.op in INFIX:
        return f"({args[0]} {INFIX[node.op]} {args[1]})"
    if node.op in PREFIX:
        return f"({PREFIX[node.op]}{args[0]})"
    if node.op in CALLS:
        return f"{CALLS[node.op]}({', '.join(args)})"
    if node.op in STANDARD:
        axis = "" if node.data[0] is None else f", {node.data[0]}"
        return f"{STANDARD[node.op]}({args[0]}{axis})"
    return FORMS[node.op](node, args)


def constant(node: Expr, args: list[str]) -> str:
    value, style = node.data
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        word = f'float("{value}")'
    else:
        word = repr(value)
    if style == "literal":
        return f"({word})" if word.startswith("-") else word
    return f"tl.full({list(node.type.shape)}, {word}, tl.{node.type.name})"


def load(node: Expr, args: list[str]) -> str:
    buffer, parts = node.data
    place = " + ".join([buffer, *args[:parts]])
    more = [f", {word}={arg}" for word, arg in zip(("mask", "other"), args[parts:], strict=False)]
    return f"tl.load({place}{''.join(more)})"


def cast(node: Expr, args: list[str]) -> str:
    rounding = ', fp_downcast_rounding="rtz"' if node.data else ""
    return f"{args[0]}.to(tl.{node.type.name}{rounding})"


def combined(node: Expr, args: list[str]) -> str:
    """A reduction or scan with a region."""
    region, axis, part, *reverse = node.data
    call = "tl.associative_scan" if node.op == "scan" else "tl.reduce"
    backwards = ", reverse=True" if any(reverse) else ""
    if len(args) == 1:
        return f"{call}({args[0]}, {axis}, {region.name}{backwards})"
    return f"{call}(({', '.join(args)}), {axis}, {region.name}{backwards})[{part}]"


def dot(node: Expr, args: list[str]) -> str:
    accumulator = f", acc={args[2]}" if len(args) > 2 else ""
    return f'tl.dot({args[0]}, {args[1]}{accumulator}, input_precision="{node.data[0]}", out_dtype=tl.{node.type.name})'


def cumulative(node: Expr, args: list[str]) -> str:
    return f"tl.{node.op}({args[0]}, {node.data[0]}{', reverse=True' if node.data[1] else ''})"


def shape(type: Type) -> str:
    return str(list(type.shape))


def divided(node: Expr, args: list[str]) -> str:
    """From Triton 3.9 on a quotient of two small floats is a float32."""
    return f"tl.fdiv({args[0]}, {args[1]}).to(tl.{node.type.name})"


def nan_wins(node: Expr, args: list[str]) -> str:
    word = "minimum" if node.op == "min_nan" else "maximum"
    return f"tl.{word}({args[0]}, {args[1]}, propagate_nan=tl.PropagateNan.ALL)"


def clamp(node: Expr, args: list[str]) -> str:
    return f"tl.clamp({', '.join(args)}, propagate_nan=tl.PropagateNan.{'ALL' if node.data[0] else 'NONE'})"


FORMS: dict[str, Callable[[Expr, list[str]], str]] = {
    "const": constant,
    "load": load,
    "cast": cast,
    "reduce": combined,
    "scan": combined,
    "dot": dot,
    "fdiv": divided,
    "cumsum": cumulative,
    "cumprod": cumulative,
    "min_nan": nan_wins,
    "max_nan": nan_wins,
    "clamp": clamp,
    "var": lambda node, args: str(node.data[0]),
    "arange": lambda node, args: f"tl.arange({node.data[0]}, {node.data[1]})",
    "pid": lambda node, args: f"tl.program_id({node.data[0]})",
    "bitcast": lambda node, args: f"{args[0]}.to(tl.{node.type.name}, bitcast=True)",
    "call": lambda node, args: f"{node.data[0].name}({', '.join(args)})",
    "broadcast": lambda node, args: f"tl.broadcast_to({args[0]}, {shape(node.type)})",
    "stretch": lambda node, args: args[0],
    "expand": lambda node, args: f"tl.expand_dims({args[0]}, {node.data[0]})",
    "reshape": lambda node, args: f"tl.reshape({args[0]}, {shape(node.type)})",
    "permute": lambda node, args: f"tl.permute({args[0]}, {list(node.data[0])})",
    "flip": lambda node, args: f"tl.flip({args[0]}, {node.data[0]})",
    "split": lambda node, args: f"tl.split({args[0]})[{node.data[0]}]",
    "gather": lambda node, args: f"tl.gather({args[0]}, {args[1]}, {node.data[0]})",
    "sort": lambda node, args: f"tl.sort({args[0]}, descending={node.data[0]})",
    "histogram": lambda node, args: f"tl.histogram({args[0]}, {node.type.count})",
}


# statements


def bind(names: Iterable[str], values: Iterable[Expr]) -> str:
    return f"{', '.join(names)} = {', '.join(map(text, values))}"


def lines(node: Statement) -> list[str]:
    match node:
        case Let():
            return [f"{node.name} = {text(node.value)}"]
        case Store():
            mask = "" if node.mask is None else f", mask={text(node.mask)}"
            return [f"tl.store({node.buffer} + {text(node.index)}, {text(node.value)}{mask})"]
        case Atomic():
            compare = "" if node.compare is None else f"{text(node.compare)}, "
            mask = "" if node.mask is None else f", mask={text(node.mask)}"
            place = f"{node.buffer} + {text(node.index)}"
            return [f"{node.name} = tl.atomic_{node.kind}({place}, {compare}{text(node.value)}{mask})"]
        case If():
            yes, no = branch(node.yes, node.names, node.yes_values), branch(node.no, node.names, node.no_values)
            return [f"if {text(node.condition)}:", *yes, "else:", *no]
        case For():
            return for_lines(node)
        case While():
            body = branch(node.body, node.names, node.following)
            return [*start(node), f"while {text(node.condition)}:", *body]


def start(node: For | While) -> list[str]:
    return [bind(node.names, node.first)] if node.names else []


def for_lines(node: For) -> list[str]:
    bounds = ", ".join([*map(text, node.bounds), str(node.step)])
    body = branch(node.body, node.names, node.following)
    if not node.static:
        return [*start(node), f"for {node.counter} in range({bounds}):", *body]
    counter = f"    {node.counter} = tl.full([], {node.counter}_, tl.int32)"
    return [*start(node), f"for {node.counter}_ in tl.static_range({bounds}):", counter, *body]


def branch(body: Iterable[Statement], names: tuple[str, ...], values: tuple[Expr, ...]) -> list[str]:
    found = [line for node in body for line in lines(node)]
    if names:
        found.append(bind(names, values))
    return ["    " + line for line in found or ["pass"]]


def function(node: Function) -> list[str]:
    names = ", ".join(f"p{number}" for number in range(len(node.parameters)))
    decorator = "@triton.jit(noinline=True)" if node.noinline else "@triton.jit"
    return [decorator, f"def {node.name}({names}):", f"    return {', '.join(map(text, node.results))}", "", ""]


def source(kernel: Kernel) -> str:
    """A module with the functions of a kernel and itself."""
    names = [*(buffer.name for buffer in kernel.buffers), *(scalar.name for scalar in kernel.scalars)]
    body = ["    " + line for node in kernel.body for line in lines(node)] or ["    pass"]
    made: list[Any] = [line for node in kernel.functions for line in function(node)]
    return "\n".join([HEADER, *made, "@triton.jit", f"def {kernel.name}({', '.join(names)}):", *body, "", ""])
