"""Random places in memory: affine ones, guarded ones, and wild ones made safe."""

from __future__ import annotations

from collections.abc import Sequence

from .draw import LOAD, Draw, binary, convert, literal, produces
from .structure import limited
from .tree import Expr, Type

INT32 = Type("int32")
Place = tuple[tuple[Expr, ...], Expr | None]


def along(shape: Sequence[int], axis: int) -> Expr:
    """The index along an axis, with size 1 in the others."""
    node = Expr("arange", INT32.shaped(shape[axis]), data=(0, shape[axis]))
    for place in range(len(shape)):
        if place != axis:
            node = Expr("expand", Type("int32", stretched_out(node.type.shape, place)), (node,), (place,))
    return node


def stretched_out(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    return shape[:place] + (1,) + shape[place:]


def affine(draw: Draw, shape: Sequence[int], strides: Sequence[int], base: Expr) -> Expr:
    """base + i0 * stride0 + i1 * stride1 ..., of the shape; what has stride 0 is still there."""
    total = base
    for axis, stride in enumerate(strides):
        index = along(shape, axis)
        if stride != 1:
            index = binary("mul", index, literal(stride))
        total = binary("add", total, index)
    return total


def extent(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest offset."""
    ends = [stride * (size - 1) for size, stride in zip(shape, strides, strict=True)]
    return sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)


def draw_strides(draw: Draw, shape: Sequence[int]) -> list[int]:
    """Dense in some order of the axes, some of them reversed, repeated or spread out."""
    order, strides, step = draw.random.sample(range(len(shape)), len(shape)), [0] * len(shape), 1
    for axis in order if draw.chance(0.3) else reversed(range(len(shape))):
        strides[axis] = draw.pick((step, step, step, step, -step, 0, 2 * step))
        step *= shape[axis]
    return strides


def inside(draw: Draw, shape: tuple[int, ...], count: int) -> Place | None:
    """An affine place that needs no mask, if the shape fits; it may move with a loop's counter."""
    strides = draw_strides(draw, shape)
    low, high = extent(shape, strides)
    room = count - 1 - (high - low)
    if room < 0:
        return None
    base: Expr = literal(draw.pick((0, room, draw.random.randrange(room + 1))) - low)
    moving = [(name, most) for name, most in draw.limits.items() if name in draw.scope]
    if moving and draw.chance(0.6):
        name, most = draw.pick(moving)
        step = draw.random.randrange(room // most + 1) if most else 0
        base = binary("add", binary("mul", draw.variable(name), literal(step)), literal(-low))
    return (affine(draw, shape, strides, base),), None


def guarded(draw: Draw, shape: tuple[int, ...], count: int) -> Place:
    """An affine place that leaves the buffer, with a mask that compares it with the buffer's ends."""
    strides = draw_strides(draw, shape)
    low, high = extent(shape, strides)
    base = draw.random.randrange(-8, count)
    index = affine(draw, shape, strides, literal(base))
    mask: Expr | None = None
    if base + high >= count or draw.chance(0.2):
        bound = draw.argument(count) if draw.chance(0.7) else literal(count)
        mask = binary("lt", index, bound, "int1")
    if base + low < 0:
        above = binary("ge", index, literal(0), "int1")
        mask = above if mask is None else binary("and", mask, above)
    return (index,), mask


def boxed(draw: Draw, shape: tuple[int, ...], count: int) -> Place:
    """A box of indexes that fits, each axis with its own bound."""
    strides = [abs(stride) for stride in draw_strides(draw, shape)]
    sizes, left = [], count - 1
    for size, stride in zip(shape, strides, strict=True):
        sizes.append(draw.random.randrange(min(size, left // stride + 1) + 1) if stride else size)
        left -= max(sizes[-1] - 1, 0) * stride
    mask: Expr | None = None
    for axis, size in enumerate(sizes):
        bound = draw.argument(size) if draw.chance(0.7) else literal(size)
        part = binary("lt", along(shape, axis), bound, "int1")
        mask = part if mask is None else binary("and", mask, part)
    return (affine(draw, shape, strides, literal(draw.random.randrange(left + 1))),), mask


def wild(draw: Draw, shape: tuple[int, ...], count: int, depth: int) -> Place:
    """Any integers, cut to the buffer; in two parts now and then."""
    dtype = draw.pick(("int32", "int64", "uint32", "int16", "uint8"))
    power = 1 << (count.bit_length() - 1)
    if draw.chance(0.3):
        value = convert(draw.expr(Type(dtype, shape), depth), "uint32")
        return (binary("mod", value, Expr("const", Type("uint32", shape), data=(count, "full"))),), None
    first = limited(draw.expr(Type(dtype, shape), depth), power)
    if draw.chance(0.3) and power > 2:
        half = limited(draw.expr(Type(dtype, shape), depth), power // 2)
        return (limited(first, power // 2), half), None
    return (first,), None


def place(draw: Draw, shape: tuple[int, ...], count: int, depth: int) -> Place:
    kind = draw.random.random()
    if depth > 0 and kind < 0.2:
        return wild(draw, shape, count, depth)
    if kind < 0.4:
        return guarded(draw, shape, count)
    if kind < 0.55:
        return boxed(draw, shape, count)
    return inside(draw, shape, count) or guarded(draw, shape, count)


@produces(3)
def load(draw: Draw, type: Type, depth: int) -> Expr | None:
    return None if draw.pure else any_load(draw, type, depth)


def any_load(draw: Draw, type: Type, depth: int) -> Expr:
    """A load of this type; lanes that are masked off have another value, or are thrown away."""
    buffer = draw.input(type.name)
    parts, mask = place(draw, type.shape, buffer.count, depth)
    if draw.chance(0.2):
        parts = (*parts[:-1], convert(parts[-1], "int64"))
    if draw.chance(0.3) and draw.budget > 0:
        extra = draw.expr(type.of("int1"), depth - 1)
        mask = extra if mask is None else binary("and", mask, extra)
    shape = binary("add", *parts).type.shape if len(parts) == 2 else parts[0].type.shape
    assert shape == type.shape, (shape, type)
    data = (buffer.name, len(parts))
    if mask is None:
        return Expr("load", type, parts, data)
    if draw.chance(0.2):
        bare = Expr("load", type, (*parts, mask), data)
        return Expr("where", type, (mask, bare, draw.expr(type, depth - 1)))
    other = draw.constant(type) if draw.chance(0.6) else draw.expr(type, depth - 1)
    return Expr("load", type, (*parts, mask, other), data)


LOAD.append(any_load)
