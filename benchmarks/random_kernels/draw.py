"""Random expressions of a wanted type, from what is in scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import TypeVar

from .dtypes import DTYPES, FLOATS, INTEGERS
from .tree import Buffer, Expr, Function, Scalar, Type

T = TypeVar("T")
SHAPES = [(), (), (2,), (8,), (8,), (16,), (32,), (64,), (2, 8), (4, 4), (8, 8), (1, 8), (4, 1), (4, 16), (2, 2, 4)]
SHAPES += [(4, 2, 8), (1, 4, 2)]
MOST_ELEMENTS = 256
COUNTS = (64, 100, 128, 201, 256)


class Draw:
    """Draws for one kernel. `pure` is on inside of functions, which are of scalars and touch no memory; `budget` is how
    many operations may still be made."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.scope: dict[str, Type] = {}
        self.limits: dict[str, int] = {}
        self.buffers: list[Buffer] = []
        self.scalars: list[Scalar] = []
        self.prefix = "f"
        self.count = 0
        self.pure = False
        self.budget = 0
        self.shapes = [self.pick(SHAPES) for _ in range(3)]
        self.dtypes = [self.pick((*FLOATS, *FLOATS, *INTEGERS, "int1")) for _ in range(3)]

    # chance

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def dtype(self) -> str:
        return self.pick(self.dtypes) if self.chance(0.7) else self.pick((*FLOATS, *INTEGERS, "int1"))

    def shape(self) -> tuple[int, ...]:
        return self.pick(self.shapes) if self.chance(0.8) else self.pick(SHAPES)

    def type(self) -> Type:
        return Type(self.dtype(), () if self.pure else self.shape())

    # expressions

    def expr(self, type: Type, depth: int) -> Expr:
        self.budget -= 1
        if depth <= 0 or self.budget <= 0:
            return self.leaf(type)
        while True:
            (producer,) = self.random.choices(PRODUCERS, WEIGHTS)
            found = producer(self, type, depth - 1)
            if found is not None:
                assert found.type == type, (producer, found.type, type)
                return found

    def leaf(self, type: Type) -> Expr:
        """A variable, a load or a constant, in this order of liking."""
        same = [name for name, known in self.scope.items() if known == type]
        if same and self.chance(0.8):
            return self.variable(self.pick(same))
        alike = [name for name, known in self.scope.items() if known.shape == type.shape]
        if alike and (self.pure or self.chance(0.4)):
            return convert(self.variable(self.pick(alike)), type.name)
        if not self.pure and self.chance(0.85):
            return self.load(type)
        return self.constant(type)

    def variable(self, name: str) -> Expr:
        return Expr("var", self.scope[name], data=(name,))

    def constant(self, type: Type, style: str = "full") -> Expr:
        dtype = type.dtype
        value: int | float
        if dtype.kind == "f":
            value = self.pick((0.0, 0.5, 1.0, 1.5, -2.0, 3.0, -0.25, 100.0, 0.0078125))
            if style == "full" and self.chance(0.15):
                value = self.pick((float("inf"), float("-inf"), float("nan")))
        elif dtype.kind == "b":
            value = self.random.randrange(2)
        else:
            near = self.random.randrange(max(dtype.low, -9), 10)
            value = near if style != "full" or self.chance(0.7) else self.pick((dtype.low, dtype.high, dtype.high - 1))
        return Expr("const", type, data=(value, style))

    def argument(self, value: int) -> Expr:
        """An int32 argument of the kernel with this value."""
        for known in self.scalars:
            if known.dtype == "int32" and known.value == value:
                return Expr("var", Type("int32"), data=(known.name,))
        self.scalars.append(Scalar(f"n{len(self.scalars)}", "int32", value))
        return Expr("var", Type("int32"), data=(self.scalars[-1].name,))

    def function(self, parameters: Sequence[str], results: Sequence[str], noinline: bool = False) -> Function:
        """A new function of scalars."""
        outer = self.scope, self.pure, self.budget
        types = [Type(name) for name in parameters]
        self.scope, self.pure, self.budget = {f"p{n}": kind for n, kind in enumerate(types)}, True, 6
        values = tuple(self.expr(Type(name), 3) for name in results)
        self.scope, self.pure, self.budget = outer
        return Function(self.fresh(self.prefix), tuple(types), values, noinline)

    # memory

    def load(self, type: Type) -> Expr:
        return LOAD[0](self, type, 0)

    def input(self, dtype: str) -> Buffer:
        """An argument that is only read."""
        known = [buffer for buffer in self.buffers if buffer.dtype == dtype and not buffer.written]
        if known and (len(known) > 1 or self.chance(0.6)):
            return self.pick(known)
        return self.buffer(dtype, self.pick(COUNTS), False)

    def buffer(self, dtype: str, count: int, written: bool) -> Buffer:
        made = Buffer(f"{'out' if written else 'in'}{len(self.buffers)}", dtype, count, written)
        self.buffers.append(made)
        return made


Producer = Callable[[Draw, Type, int], Expr | None]
PRODUCERS: list[Producer] = []
WEIGHTS: list[float] = []
# What makes a load, which needs expressions itself.
LOAD: list[Callable[[Draw, Type, int], Expr]] = []


def produces(weight: float) -> Callable[[Producer], Producer]:
    """Register what makes an expression of a type, or None where it cannot."""

    def register(producer: Producer) -> Producer:
        PRODUCERS.append(producer)
        WEIGHTS.append(weight)
        return producer

    return register


def convert(value: Expr, name: str, toward_zero: bool = False) -> Expr:
    if value.type.name == name:
        return value
    if value.op == "const":
        # A bare number of Python has no method.
        value = Expr("const", value.type, data=(value.data[0], "full"))
    return Expr("cast", value.type.of(name), (value,), (True,) if toward_zero else ())


def binary(op: str, left: Expr, right: Expr, name: str | None = None) -> Expr:
    """Of two operands of one dtype; shapes broadcast."""
    sides = [left.type.shape, right.type.shape]
    rank = max(map(len, sides))
    padded = [(1,) * (rank - len(side)) + side for side in sides]
    shape = tuple(max(pair) for pair in zip(*padded, strict=True))
    return Expr(op, Type(name or left.type.name, shape), (left, right))


def literal(value: int, name: str = "int32") -> Expr:
    return Expr("const", Type(name), data=(value, "literal"))


def small(shape: Sequence[int]) -> bool:
    return prod(shape) <= MOST_ELEMENTS


def wrapped(dtype: str, value: int) -> int:
    """The value if the dtype holds it, else its largest."""
    return min(value, DTYPES[dtype].high)
