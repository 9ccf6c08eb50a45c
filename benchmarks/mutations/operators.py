"""Mutation operators: each maps a node of a kernel's syntax tree to the nodes that may stand in its place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

SKIPPED = ("static_assert", "static_print", "device_print", "device_assert", "multiple_of", "max_contiguous")
"""Functions of the language that compute nothing: their arguments are not mutated."""
TUNING = ("num_warps", "num_stages", "num_ctas", "eviction_policy", "cache_modifier", "axis", "dtype")
"""Keywords whose values are no arithmetic, or have an operator of their own."""
ACCESSES = {"load": 1, "store": 2, "atomic_add": 2, "atomic_max": 2, "atomic_cas": 3}
"""The functions that access memory, and how many of their positional arguments come before the mask."""
SWAPPED = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "sum": "max", "exp": "exp2",
    "exp2": "exp", "log": "log2", "log2": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "sin": "cos", "cos": "sin",
}  # fmt: skip
BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Kernel:
    """What an operator knows of the function around a node: the parameters that multiply something."""

    strides: tuple[str, ...]


Operator = Callable[[ast.AST, Kernel], Iterator[ast.AST]]


def called(node: ast.AST) -> str:
    """The last part of the name of a function that is called, empty for any other node."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def binary(node: ast.AST, *kinds: type[ast.operator]) -> ast.BinOp | None:
    return node if isinstance(node, ast.BinOp) and isinstance(node.op, kinds) else None


def drop_mask(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`load(p, mask=m, other=o)` becomes `load(p)`."""
    if isinstance(node, ast.Call) and (count := ACCESSES.get(called(node))):
        kept = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
        if len(kept) < len(node.keywords) or len(node.args) > count:
            yield ast.Call(node.func, node.args[:count], kept)


def weaken_mask(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a & b` becomes `a` or `b`."""
    if both := binary(node, ast.BitAnd):
        yield from (both.left, both.right)


def move_bound(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a < b` becomes `a <= b`, and the like."""
    if isinstance(node, ast.Compare) and (kind := BOUNDS.get(type(node.ops[0]))):
        yield ast.Compare(node.left, [kind(), *node.ops[1:]], node.comparators)


def change_constant(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """An integer becomes the next or the previous one; any other number twice itself, and 0.0 becomes 1.0."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        if node.value > 0:
            yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        yield ast.Constant(2 * node.value or 1.0)


def drop_cast(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`x.to(T)` becomes `x`."""
    if isinstance(node, ast.Call) and called(node) == "to" and isinstance(node.func, ast.Attribute):
        yield node.func.value


def move_cast(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`(a * b).to(T)` becomes `a.to(T) * b`, and `a.to(T) * b` becomes `(a * b).to(T)`."""
    if isinstance(node, ast.Call) and called(node) == "to" and isinstance(node.func, ast.Attribute):
        if isinstance(inner := node.func.value, ast.BinOp):
            early = ast.Call(ast.Attribute(inner.left, "to", ast.Load()), node.args, node.keywords)
            yield ast.BinOp(early, inner.op, inner.right)
    if isinstance(node, ast.BinOp) and called(node.left) == "to":
        cast = deepcopy(node.left)
        assert isinstance(cast, ast.Call) and isinstance(cast.func, ast.Attribute)
        cast.func.value = ast.BinOp(cast.func.value, node.op, node.right)
        yield cast


def narrow_dtype(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`tl.float32` becomes `tl.bfloat16` or `tl.float16`, `tl.int64` becomes `tl.int32`."""
    narrower = {"float32": ("bfloat16", "float16"), "int64": ("int32",)}
    if isinstance(node, ast.Attribute):
        yield from (ast.Attribute(node.value, name, node.ctx) for name in narrower.get(node.attr, ()))


def swap_stride(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """A stride becomes another one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in kernel.strides:
        yield from (ast.Name(other, node.ctx) for other in kernel.strides if other != node.id)


def change_other(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """What masked lanes hold becomes 1 where it is 0, and 0 where it is anything else."""
    if isinstance(node, ast.Call) and called(node) == "load":
        for place, keyword in enumerate(node.keywords):
            if keyword.arg == "other":
                zero = isinstance(keyword.value, ast.Constant) and keyword.value.value == 0
                changed = deepcopy(node.keywords)
                changed[place].value = ast.Constant(1.0 if zero else 0.0)
                yield ast.Call(node.func, node.args, changed)


def move_eps(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`f(x + eps)` becomes `f(x) + eps`."""
    if isinstance(node, ast.Call) and node.args and (total := binary(node.args[0], ast.Add)):
        if "eps" in getattr(total.right, "id", "").lower():
            yield ast.BinOp(ast.Call(node.func, [total.left, *node.args[1:]], node.keywords), ast.Add(), total.right)


def drop_term(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a + b` becomes `a` or `b`, `a - b` becomes `a`."""
    if total := binary(node, ast.Add, ast.Sub):
        yield total.left
        if isinstance(total.op, ast.Add):
            yield total.right


def drop_factor(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a * b` becomes `a` or `b`, `a / b` becomes `a`."""
    if product := binary(node, ast.Mult, ast.Div):
        yield product.left
        if isinstance(product.op, ast.Mult):
            yield product.right


def flip_sign(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a + b` becomes `a - b` and the other way round; `-a` becomes `a`."""
    if total := binary(node, ast.Add, ast.Sub):
        yield ast.BinOp(total.left, ast.Sub() if isinstance(total.op, ast.Add) else ast.Add(), total.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def swap_function(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`maximum` becomes `minimum`, `exp` becomes `exp2`, and the like."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (other := SWAPPED.get(called(node))):
        yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)


def replace_update(node: ast.AST, kernel: Kernel) -> Iterator[ast.AST]:
    """`a += b` becomes `a = b`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield ast.Assign([node.target], node.value)


OPERATORS: dict[str, Operator] = {
    "mask dropped": drop_mask,
    "mask weakened": weaken_mask,
    "bound moved": move_bound,
    "constant changed": change_constant,
    "cast dropped": drop_cast,
    "cast moved": move_cast,
    "dtype narrowed": narrow_dtype,
    "stride swapped": swap_stride,
    "other= changed": change_other,
    "eps moved": move_eps,
    "term dropped": drop_term,
    "factor dropped": drop_factor,
    "sign flipped": flip_sign,
    "function swapped": swap_function,
    "update replaced": replace_update,
}
