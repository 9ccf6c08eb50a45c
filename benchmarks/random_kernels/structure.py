"""Random operations that move elements, combine them along an axis, or multiply matrices."""

from __future__ import annotations

from math import prod

from .draw import Draw, binary, literal, produces, small, wrapped
from .dtypes import DTYPES, FLOATS, INTEGERS
from .language import TRITON
from .tree import Expr, Type


@produces(2)
def broadcast(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape:
        return None
    shape = () if draw.chance(0.3) else tuple(1 if draw.chance(0.5) else size for size in type.shape)
    return Expr("broadcast", type, (draw.expr(Type(type.name, shape), depth),)) if shape != type.shape else None


@produces(2)
def expand(draw: Draw, type: Type, depth: int) -> Expr | None:
    ones = [axis for axis, size in enumerate(type.shape) if size == 1]
    if not ones or len(type.shape) == 1:
        return None
    axis = draw.pick(ones)
    shape = type.shape[:axis] + type.shape[axis + 1 :]
    return Expr("expand", type, (draw.expr(Type(type.name, shape), depth),), (axis,))


@produces(1)
def reshape(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape:
        return None
    left, shape = type.count, list[int]()
    while left > 1 and len(shape) < 2:
        shape.append(2 ** draw.random.randrange(left.bit_length()))
        left //= shape[-1]
    source = Type(type.name, (*shape, left))
    return Expr("reshape", type, (draw.expr(source, depth),)) if source != type else None


@produces(1.5)
def permute(draw: Draw, type: Type, depth: int) -> Expr | None:
    rank = len(type.shape)
    if rank < 2:
        return None
    order = draw.random.sample(range(rank), rank)
    shape = [0] * rank
    for place, axis in enumerate(order):
        shape[axis] = type.shape[place]
    return Expr("permute", type, (draw.expr(Type(type.name, tuple(shape)), depth),), (tuple(order),))


@produces(0.5)
def flip(draw: Draw, type: Type, depth: int) -> Expr | None:
    long = [axis for axis, size in enumerate(type.shape) if size > 1]
    if not long or type.name == "int1":
        return None
    return Expr("flip", type, (draw.expr(type, depth),), (draw.pick(long),))


@produces(1)
def join(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape or type.shape[-1] != 2:
        return None
    side = Type(type.name, type.shape[:-1])
    return Expr("join", type, (draw.expr(side, depth), draw.expr(side, depth)))


@produces(0.7)
def interleave(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape or type.shape[-1] < 4:
        return None
    side = type.shaped(*type.shape[:-1], type.shape[-1] // 2)
    return Expr("interleave", type, (draw.expr(side, depth), draw.expr(side, depth)))


@produces(0.7)
def split(draw: Draw, type: Type, depth: int) -> Expr | None:
    if draw.pure or len(type.shape) > 2 or not small((*type.shape, 2)):
        return None
    return Expr("split", type, (draw.expr(type.shaped(*type.shape, 2), depth),), (draw.random.randrange(2),))


@produces(0.7)
def gather(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape or len(type.shape) > 2:
        return None
    axis, size = draw.random.randrange(len(type.shape)), draw.pick((2, 4, 8, 16))
    source = type.shape[:axis] + (size,) + type.shape[axis + 1 :]
    if not small(source):
        return None
    index = binary("and", draw.expr(type.of("int32"), depth), literal(size - 1))
    return Expr("gather", type, (draw.expr(type.shaped(*source), depth), index), (axis,))


@produces(0.1)
def sort(draw: Draw, type: Type, depth: int) -> Expr | None:
    if type.dtype.kind not in "iu" or not type.shape or not 1 < type.shape[-1] <= 8:
        return None
    return Expr("sort", type, (draw.expr(type, depth),), (draw.chance(0.5),))


@produces(0.7)
def histogram(draw: Draw, type: Type, depth: int) -> Expr | None:
    if type.name != "int32" or len(type.shape) != 1:
        return None
    values = draw.expr(Type("int32", (draw.pick((2, 8, 32)),)), depth)
    return Expr("histogram", type, (binary("and", values, literal(type.count - 1)),))


@produces(0.7)
def arange(draw: Draw, type: Type, depth: int) -> Expr | None:
    if type.name != "int32" or len(type.shape) != 1:
        return None
    start = draw.pick((0, 0, 0, 3, 16))
    return Expr("arange", type, data=(start, start + type.count))


# along an axis


def lengthened(draw: Draw, type: Type) -> tuple[tuple[int, ...], int | None] | None:
    """A shape that has the type's one with an axis more, and the axis; None for all axes of any shape."""
    size = draw.pick((1, 2, 4, 8, 16))
    if not type.shape and draw.chance(0.3):
        shape = draw.shape() or (8,)
        return shape, None
    axis = draw.random.randrange(len(type.shape) + 1)
    shape = type.shape[:axis] + (size,) + type.shape[axis:]
    return (shape, axis) if small(shape) and len(shape) <= 3 else None


def promoted(op: str, name: str) -> str:
    """The dtype in which the standard library computes."""
    dtype = DTYPES[name]
    if op in ("cumsum", "cumprod") and TRITON >= (3, 9):
        return promoted("sum", name)
    if op in ("xor_sum", "cumprod"):
        return "float32" if name == "bfloat16" else name
    if dtype.kind == "f":
        wide = op in ("largest", "smallest") or (op == "cumsum" and name == "bfloat16")
        return "float32" if wide and dtype.bits < 32 else name
    if dtype.bits >= 32:
        return name
    return "uint32" if dtype.kind == "u" and op in ("sum", "cumsum") else "int32"


@produces(2.5)
def reduction(draw: Draw, type: Type, depth: int) -> Expr | None:
    """One of the standard library's."""
    found = None if draw.pure else lengthened(draw, type)
    options = sources(("sum", "largest", "smallest", "xor_sum", "argmax", "argmin"), type)
    if found is None or not options:
        return None
    op, source = draw.pick(options)
    if op.startswith("arg") and found[1] is None:
        return None
    return Expr(op, type, (draw.expr(Type(source, found[0]), depth),), (found[1],))


def sources(ops: tuple[str, ...], type: Type) -> list[tuple[str, str]]:
    """Operations of the standard library, and of which dtype each gives the wanted one."""
    found = []
    for op in ops:
        for name in (*FLOATS, *INTEGERS):
            fits = (type.name == "int32") if op.startswith("arg") else promoted(op, name) == type.name
            if fits and not (op == "xor_sum" and DTYPES[name].kind == "f"):
                found.append((op, name))
    return found


@produces(1.5)
def own_reduction(draw: Draw, type: Type, depth: int) -> Expr | None:
    """With a region of our own, which need not be associative: the order of combining is known."""
    found = None if draw.pure or draw.budget < 5 else lengthened(draw, type)
    if found is None or found[1] is None:
        return None
    names = [draw.dtype() for _ in range(draw.pick((0, 0, 1, 2)))]
    part = draw.random.randrange(len(names) + 1)
    names.insert(part, type.name)
    region = draw.function([*names, *names], names)
    operands = tuple(draw.expr(Type(name, found[0]), depth) for name in names)
    return Expr("reduce", type, operands, (region, found[1], part))


@produces(1)
def scan(draw: Draw, type: Type, depth: int) -> Expr | None:
    if not type.shape or draw.budget < 5:
        return None
    axis, reverse = draw.random.randrange(len(type.shape)), draw.chance(0.4)
    options = sources(("cumsum", "cumprod"), type)
    if options and draw.chance(0.6):
        op, source = draw.pick(options)
        return Expr(op, type, (draw.expr(type.of(source), depth),), (axis, reverse))
    names = [draw.dtype() for _ in range(draw.pick((0, 0, 1)))]
    part = draw.random.randrange(len(names) + 1)
    names.insert(part, type.name)
    region = draw.function([*names, *names], names)
    operands = tuple(draw.expr(type.of(name), depth) for name in names)
    return Expr("scan", type, operands, (region, axis, part, reverse))


@produces(2)
def dot(draw: Draw, type: Type, depth: int) -> Expr | None:
    """A float accumulator is loaded: Triton may move the addition of a product without one, and so reorder sums."""
    sources = {"float16": ("float16",), "float32": ("float16", "bfloat16", "float32"), "float64": ("float64",)}
    sources["int32"] = ("int8",)
    if type.name not in sources or len(type.shape) not in (2, 3):
        return None
    *batch, rows, columns = type.shape
    depth_k, source = draw.pick((1, 2, 4, 8)), draw.pick(sources[type.name])
    if prod(batch) * max(rows, columns) * depth_k > 256:
        return None
    left = draw.expr(Type(source, (*batch, rows, depth_k)), depth)
    right = draw.expr(Type(source, (*batch, depth_k, columns)), depth)
    initial = (draw.load(type),) if type.dtype.kind == "f" or draw.chance(0.5) else ()
    return Expr("dot", type, (left, right, *initial), (draw.pick(("ieee", "tf32", "tf32x3")),))


def limited(value: Expr, count: int) -> Expr:
    """Any integer made an index below a power of two."""
    return binary("and", value, literal(wrapped(value.type.name, count - 1), value.type.name))
