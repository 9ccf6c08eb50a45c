"""Random statements, and the kernel that they make."""

from __future__ import annotations

from itertools import count

from .draw import Draw, binary, literal
from .memory import affine
from .structure import limited
from .tree import Atomic, Expr, For, If, Kernel, Let, Statement, Store, Type, While, walk

INT32 = Type("int32")
DEPTH = 4
# How many operations a statement is made of.
BUDGETS = (2, 3, 5, 10)
PROGRAM = "program"
# The time of the C compiler goes by size: many small kernels see more than few large ones.
MOST_NODES = 200


def kernel(seed: int) -> Kernel:
    """The kernel of a seed: the first that is not too large."""
    drawn = (attempt(seed, number) for number in count())
    return next(found for found in drawn if sum(1 for _ in walk(found)) <= MOST_NODES)


def attempt(seed: int, number: int) -> Kernel:
    draw = Draw(f"{seed} {number}")
    grid = draw.pick(((1, 1), (1, 1), (2, 1), (3, 1), (2, 2)))
    programs = grid[0] * grid[1]
    maker = Statements(draw, programs)
    here = binary("add", binary("mul", pid(1), literal(grid[0])), pid(0))
    draw.scope[PROGRAM] = INT32
    draw.limits[PROGRAM] = programs - 1
    body: list[Statement] = [Let(PROGRAM, here)]
    for _ in range(draw.pick((1, 1, 1, 2))):
        body += maker.statement(0)
    for _ in range(draw.pick((1, 1, 1, 2))):
        body += maker.store()
    return Kernel(seed, f"k{seed}", grid, tuple(draw.buffers), tuple(draw.scalars), tuple(body))


def pid(axis: int) -> Expr:
    return Expr("pid", INT32, data=(axis,))


class Statements:
    """Draws statements; those that nest see the names around them, and what they bind inside ends with them."""

    def __init__(self, draw: Draw, programs: int) -> None:
        self.draw = draw
        self.programs = programs

    def statement(self, nested: int) -> list[Statement]:
        draw = self.draw
        draw.budget = draw.pick(BUDGETS)
        kinds = {self.let: 8.0, self.store: 1.0, self.again: 1.5, self.atomic: 1.5}
        if nested < 2:
            kinds |= {self.loop: 6.0, self.until: 1.5, self.branch: 2.5}
        (kind,) = draw.random.choices(list(kinds), list(kinds.values()))
        return kind(nested)

    def block(self, nested: int) -> list[Statement]:
        return [node for _ in range(self.draw.pick((0, 0, 1, 1))) for node in self.statement(nested + 1)]

    def let(self, nested: int = 0) -> list[Statement]:
        value = self.draw.expr(self.draw.type(), DEPTH)
        name = self.draw.fresh("v")
        self.draw.scope[name] = value.type
        return [Let(name, value)]

    # memory

    def region(self, shape: tuple[int, ...]) -> Expr:
        """Distinct places for all lanes and programs."""
        step, low, strides = 1, 0, [0] * len(shape)
        order = list(reversed(range(len(shape))))
        if self.draw.chance(0.3):
            self.draw.random.shuffle(order)
        for axis in order:
            strides[axis] = self.draw.pick((step, step, step, -step))
            low += min(0, strides[axis] * (shape[axis] - 1))
            step *= shape[axis]
        base = binary("mul", self.draw.variable(PROGRAM), literal(step))
        return affine(self.draw, shape, strides, binary("add", base, literal(-low)) if low else base)

    def store(self, nested: int = 0) -> list[Statement]:
        """To a buffer of its own, every lane of every program to another place."""
        draw, type = self.draw, self.draw.type()
        draw.budget = draw.pick(BUDGETS)
        value = draw.expr(type, DEPTH)
        buffer = draw.buffer(type.name, self.programs * type.count, True)
        mask = draw.expr(type.of("int1"), 2) if draw.chance(0.3) else None
        return [Store(buffer.name, self.region(type.shape), value, mask)]

    def again(self, nested: int) -> list[Statement]:
        """A store, and a load of what the same program stored, in another order."""
        (stored,) = self.store(nested)
        assert isinstance(stored, Store)
        draw, type = self.draw, stored.value.type
        if not type.shape:
            return [stored]
        places = limited(draw.expr(type.of("int32"), 1), type.count)
        base = binary("mul", draw.variable(PROGRAM), literal(type.count))
        value = Expr("load", type, (binary("add", base, places),), (stored.buffer, 1))
        name = draw.fresh("v")
        draw.scope[name] = type
        return [stored, Let(name, value)]

    def atomic(self, nested: int) -> list[Statement]:
        """Of integers anywhere, as order does not matter; else every lane of every program at another place."""
        draw = self.draw
        kind = draw.pick(("add", "add", "and", "or", "xor", "min", "max", "xchg", "cas"))
        if kind == "add":
            dtype = draw.pick(("int32", "int64", "uint32", "uint64", "float16", "float32", "float64"))
        else:
            dtype = draw.pick(("int32", "int64") if kind in ("xchg", "cas") else ("int32", "int64", "uint32", "uint64"))
        type = Type(dtype, draw.shape())
        apart = type.dtype.kind == "f" or kind in ("xchg", "cas") or draw.chance(0.3)
        size = self.programs * type.count if apart else 64
        value = draw.expr(type, 2)
        compare = draw.expr(type, 1) if kind == "cas" else None
        index = self.region(type.shape) if apart else limited(draw.expr(type.of("int32"), 2), size)
        mask = draw.expr(type.of("int1"), 2) if kind != "cas" and draw.chance(0.4) else None
        buffer, name = draw.buffer(dtype, size, True), draw.fresh("v")
        if apart and mask is None:
            draw.scope[name] = type
        return [Atomic(name, kind, buffer.name, index, value, compare, mask)]

    # control

    def carried(self) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
        draw = self.draw
        first = tuple(draw.expr(draw.type(), 2) for _ in range(draw.pick((1, 1, 2))))
        return tuple(draw.fresh("c") for _ in first), first

    def turn(self, names: tuple[str, ...], first: tuple[Expr, ...], nested: int) -> tuple[Statement, ...]:
        """A loop's body; the scope afterwards is that of its end."""
        self.draw.scope |= {name: value.type for name, value in zip(names, first, strict=True)}
        return tuple(self.block(nested))

    def loop(self, nested: int) -> list[Statement]:
        draw, outer = self.draw, dict(self.draw.scope)
        names, first = self.carried()
        counter, trips, step = draw.fresh("k"), draw.random.randrange(6), draw.pick((1, 1, 2, 3, -1))
        start = draw.pick((0, 0, 0, 1)) if step > 0 else trips
        stop = start + trips * step if step > 0 else 0
        static = draw.chance(0.15) and step > 0
        high: Expr = literal(stop)
        if step > 0 and not static and draw.chance(0.5):
            high = draw.argument(stop) if draw.chance(0.5) else limited(draw.expr(INT32, 1), 4)
            stop = max(stop, 4)
        draw.scope[counter] = INT32
        draw.limits[counter] = max(stop, start, 0)
        body = self.turn(names, first, nested)
        following = tuple(draw.expr(value.type, 2) for value in first)
        draw.scope = outer | {name: value.type for name, value in zip(names, first, strict=True)}
        return [For(counter, (literal(start), high), step, names, first, body, following, static)]

    def until(self, nested: int) -> list[Statement]:
        """A while loop, of at most so many turns."""
        draw, outer = self.draw, dict(self.draw.scope)
        names, first = self.carried()
        counter, most = draw.fresh("k"), draw.random.randrange(5)
        names, first = (counter, *names), (Expr("const", INT32, data=(0, "full")), *first)
        draw.scope |= {name: value.type for name, value in zip(names, first, strict=True)}
        draw.limits[counter] = most
        going = binary("lt", draw.variable(counter), literal(most), "int1")
        if draw.chance(0.6):
            going = binary("and", going, draw.expr(Type("int1"), 2))
        body = self.turn(names, first, nested)
        following = tuple(draw.expr(value.type, 2) for value in first[1:])
        following = (binary("add", draw.variable(counter), literal(1)), *following)
        draw.scope = outer | {name: value.type for name, value in zip(names, first, strict=True)}
        return [While(going, names, first, body, following)]

    def branch(self, nested: int) -> list[Statement]:
        draw, outer = self.draw, dict(self.draw.scope)
        condition = draw.expr(Type("int1"), 2)
        types = [draw.type() for _ in range(draw.random.randrange(1, 3))]
        names = tuple(draw.fresh("v") for _ in types)
        sides = []
        for _ in range(2):
            draw.scope = dict(outer)
            body = tuple(self.block(nested))
            sides.append((body, tuple(draw.expr(type, 2) for type in types)))
        draw.scope = outer | dict(zip(names, types, strict=True))
        return [If(condition, names, *sides[0], *sides[1])]
