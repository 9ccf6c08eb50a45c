"""What each operation of an expression means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from . import arithmetic
from .dtypes import Array, DType
from .language import TRITON
from .registry import evaluates
from .tree import Expr

if TYPE_CHECKING:
    from .evaluate import Evaluator


NARROW_GROUP = 16
"""Products that are added in float32 before a sum of 16 bits is rounded."""


@evaluates("var")
def var(run: Evaluator, node: Expr) -> Array:
    return run.values[node.data[0]]


@evaluates("const")
def const(run: Evaluator, node: Expr) -> Array:
    return np.full(node.type.shape, node.data[0]).astype(node.type.dtype.held)


@evaluates("arange")
def arange(run: Evaluator, node: Expr) -> Array:
    return np.arange(*node.data, dtype=np.int32)


@evaluates("pid")
def pid(run: Evaluator, node: Expr) -> Array:
    return np.int32(run.program[node.data[0]])


@evaluates("load")
def load(run: Evaluator, node: Expr, *operands: Array) -> Array:
    """Operands: the parts of the index, then the mask and the value beside it, if there are any."""
    buffer, parts = node.data
    index = sum(np.asarray(part).astype(np.int64) for part in operands[:parts])
    mask, other = [*operands[parts:], None, None][:2]
    return run.load(buffer, np.broadcast_to(index, node.type.shape), mask, other)


# element by element


def plain(dtype: DType, x: Array, y: Array, compute: Callable[[Array, Array], Array]) -> Array:
    return arithmetic.finish(dtype, compute(arithmetic.widened(dtype, x), arithmetic.widened(dtype, y)))


@evaluates("add", "sub", "mul", "div", "fdiv", "div_rn")
def arithmetic_operator(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply}.get(node.op, np.divide)
    return plain(node.type.dtype, x, y, compute)


@evaluates("and", "or", "xor")
def bitwise(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[node.op](x, y)


@evaluates("shl", "shr")
def shift(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    return arithmetic.shift(node.type.dtype, x, y, node.op == "shl")


@evaluates("floordiv", "mod")
def division(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    if node.type.dtype.kind == "f":
        return arithmetic.remainder(node.type.dtype, x, y)
    return arithmetic.divide(node.type.dtype, x, y)[node.op == "mod"]


@evaluates("mulhi")
def mulhi(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    return arithmetic.high_product(node.type.dtype, x, y)


@evaluates("min", "max", "min_nan", "max_nan")
def extreme(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    if node.type.dtype.kind != "f":
        return (np.minimum if node.op == "min" else np.maximum)(x, y)
    return arithmetic.extreme(x, y, node.op.startswith("max"), node.op.endswith("nan"))


@evaluates("lt", "le", "gt", "ge", "eq", "ne")
def compare(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    compute = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
    return compute.get(node.op, np.not_equal)(x, y)


@evaluates("neg")
def negate(run: Evaluator, node: Expr, x: Array) -> Array:
    """Before Triton 3.8, 0 - x, which is 0 for 0."""
    return -x if TRITON >= (3, 8) and x.dtype.kind == "f" else np.zeros((), x.dtype) - x


@evaluates("inv")
def invert(run: Evaluator, node: Expr, x: Array) -> Array:
    return ~x


@evaluates("abs")
def absolute(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.abs(x)


@evaluates("floor", "ceil", "sqrt", "sqrt_rn")
def function(run: Evaluator, node: Expr, x: Array) -> Array:
    return {"floor": np.floor, "ceil": np.ceil}.get(node.op, np.sqrt)(x)


@evaluates("where")
def where(run: Evaluator, node: Expr, condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


@evaluates("fma")
def fma(run: Evaluator, node: Expr, *operands: Array) -> Array:
    return arithmetic.fma(node.type.dtype, *operands)


@evaluates("clamp")
def clamp(run: Evaluator, node: Expr, x: Array, low: Array, high: Array) -> Array:
    propagate = node.data[0]
    return arithmetic.extreme(arithmetic.extreme(x, low, True, propagate), high, False, propagate)


@evaluates("cast")
def cast(run: Evaluator, node: Expr, x: Array) -> Array:
    return arithmetic.cast(node.args[0].type.dtype, node.type.dtype, np.asarray(x), *node.data)


@evaluates("bitcast")
def bitcast(run: Evaluator, node: Expr, x: Array) -> Array:
    return arithmetic.bitcast(node.args[0].type.dtype, node.type.dtype, np.asarray(x))


@evaluates("call")
def call(run: Evaluator, node: Expr, *operands: Array) -> Array:
    function, part = node.data
    return run.call(function, np.broadcast_arrays(*operands))[part]


# shapes


@evaluates("broadcast", "stretch")
def broadcast(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.broadcast_to(x, node.type.shape)


@evaluates("expand", "reshape")
def reshape(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.reshape(x, node.type.shape)


@evaluates("permute")
def permute(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.transpose(x, node.data[0])


@evaluates("flip")
def flip(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.flip(x, node.data[0])


@evaluates("join")
def join(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    return np.stack(np.broadcast_arrays(x, y), -1)


@evaluates("interleave")
def interleave(run: Evaluator, node: Expr, x: Array, y: Array) -> Array:
    return np.reshape(np.stack([x, y], -1), node.type.shape)


@evaluates("split")
def split(run: Evaluator, node: Expr, x: Array) -> Array:
    return x[..., node.data[0]]


@evaluates("gather")
def gather(run: Evaluator, node: Expr, x: Array, index: Array) -> Array:
    return np.take_along_axis(x, np.asarray(index).astype(np.int64), node.data[0])


@evaluates("sort")
def sort(run: Evaluator, node: Expr, x: Array) -> Array:
    ordered = np.sort(x, -1)
    return np.flip(ordered, -1) if node.data[0] else ordered


@evaluates("histogram")
def histogram(run: Evaluator, node: Expr, x: Array) -> Array:
    return np.bincount(np.asarray(x), minlength=node.type.count).astype(np.int32)


# along an axis

Combine = Callable[[list[Array], list[Array]], list[Array]]


def tree(arrays: list[Array], combine: Combine) -> list[Array]:
    """Element i with i + h, for h = n/2, n/4, ..., 1, along the first axis."""
    size = len(arrays[0])
    while size > 1:
        size //= 2
        arrays = combine([array[:size] for array in arrays], [array[size:] for array in arrays])
    return [array[0] for array in arrays]


def along(axis: int | None, arrays: list[Array]) -> list[Array]:
    """The axis first; all elements in order without one."""
    return [np.ravel(array) if axis is None else np.moveaxis(array, axis, 0) for array in arrays]


def region(run: Evaluator, node: Expr) -> Combine:
    return lambda left, right: run.call(node.data[0], [*left, *right])


@evaluates("reduce")
def reduce(run: Evaluator, node: Expr, *operands: Array) -> Array:
    _, axis, part = node.data
    found = tree(along(axis, list(np.broadcast_arrays(*operands))), region(run, node))[part]
    return np.reshape(found, node.type.shape)


def argument(left: list[Array], right: list[Array], largest: bool) -> list[Array]:
    """The index of the larger or smaller value, the lower index of equals."""
    (x, i), (y, j) = left, right
    first = ((x > y) if largest else (x < y)) | ((x == y) & (i < j))
    return [np.where(first, x, y), np.where(first, i, j)]


@evaluates("sum", "largest", "smallest", "xor_sum", "argmax", "argmin")
def named(run: Evaluator, node: Expr, x: Array) -> Array:
    """Those of Triton's standard library, of a value that is promoted already."""
    dtype = node.args[0].type.dtype if node.op.startswith("arg") else node.type.dtype
    (array,) = along(node.data[0], [arithmetic.cast(node.args[0].type.dtype, dtype, np.asarray(x))])
    if node.op.startswith("arg"):
        index = np.arange(len(array), dtype=np.int32).reshape(-1, *[1] * (array.ndim - 1))
        arrays = [array, np.broadcast_to(index, array.shape)]
        return np.reshape(tree(arrays, partial(argument, largest=node.op == "argmax"))[1], node.type.shape)
    computes: dict[str, Callable[[Array, Array], Array]] = {
        "sum": lambda a, b: plain(dtype, a, b, np.add),
        "xor_sum": np.bitwise_xor,
        "largest": partial(better, dtype, True),
        "smallest": partial(better, dtype, False),
    }
    compute = computes[node.op]
    return np.reshape(tree([array], lambda a, b: [compute(a[0], b[0])])[0], node.type.shape)


def better(dtype: DType, largest: bool, x: Array, y: Array) -> Array:
    if dtype.kind == "f":
        return arithmetic.extreme(x, y, largest, False)
    return np.maximum(x, y) if largest else np.minimum(x, y)


def running(arrays: list[Array], reverse: bool, combine: Combine) -> list[Array]:
    """In sequence along the first axis, from its end if reversed."""
    if reverse:
        arrays = [array[::-1] for array in arrays]
    rows = [[array[0] for array in arrays]]
    for step in range(1, len(arrays[0])):
        rows.append(combine(rows[-1], [array[step] for array in arrays]))
    found = [np.stack(column) for column in zip(*rows, strict=True)]
    return [array[::-1] for array in found] if reverse else found


@evaluates("scan")
def scan(run: Evaluator, node: Expr, *operands: Array) -> Array:
    _, axis, part, reverse = node.data
    arrays = along(axis, list(np.broadcast_arrays(*operands)))
    return np.moveaxis(running(arrays, reverse, region(run, node))[part], 0, axis)


@evaluates("cumsum", "cumprod")
def cumulative(run: Evaluator, node: Expr, x: Array) -> Array:
    axis, reverse = node.data
    dtype, compute = node.type.dtype, np.add if node.op == "cumsum" else np.multiply
    arrays = along(axis, [arithmetic.cast(node.args[0].type.dtype, dtype, np.asarray(x))])
    found = running(arrays, reverse, lambda a, b: [plain(dtype, a[0], b[0], compute)])
    return np.moveaxis(found[0], 0, axis)


@evaluates("dot")
def dot(run: Evaluator, node: Expr, left: Array, right: Array, *initial: Array) -> Array:
    """One product after another along K onto the accumulator, in its type; products and sums of float16 are float32,
    and each sum of 16 is rounded. Of float32 operands tf32 cuts the low bits; tf32x3 sums products of parts and
    rests."""
    dtype = node.type.dtype
    wide = np.float32 if dtype.name == "float16" else dtype.held
    a, b = (np.asarray(side).astype(wide) for side in (left, right))
    total = initial[0] if initial else np.zeros(node.type.shape, dtype.held)
    precision = node.data[0] if node.args[0].type.name == "float32" else "ieee"
    if precision == "tf32x3":
        (a, low_a), (b, low_b) = split_tf32(a), split_tf32(b)
        small = add_products(add_products(np.zeros_like(total), low_a, b, dtype, wide), a, low_b, dtype, wide)
        return total + add_products(np.where(np.isnan(small), np.float32(0), small), a, b, dtype, wide)
    if precision == "tf32":
        a, b = cut_tf32(a), cut_tf32(b)
    return add_products(total, a, b, dtype, wide)


def add_products(total: Array, a: Array, b: Array, dtype: DType, wide: np.dtype) -> Array:
    """The total and the products of two stacks of matrices, one after another along K; rounded after 16 of them."""
    total, depth = total.astype(wide), a.shape[-1]
    for k in range(depth):
        total = total + a[..., :, k, None] * b[..., None, k, :]
        if (k + 1) % NARROW_GROUP == 0 or k + 1 == depth:
            total = total.astype(dtype.held).astype(wide)
    return total.astype(dtype.held)


def cut_tf32(x: Array) -> Array:
    """float32 without its low 13 bits; NaN as it is."""
    return np.where(np.isnan(x), x, (x.view(np.uint32) & 0xFFFFE000).view(np.float32))


def split_tf32(x: Array) -> tuple[Array, Array]:
    """float32 as a part of 10 stored bits, rounded to nearest with ties away from zero, and the rest, which is cut."""
    word = x.view(np.uint32)
    part = np.where(word & 0x7F800000 == 0x7F800000, x, ((word + 0x1000) & 0xFFFFE000).view(np.float32))
    return part, cut_tf32(x - part)
