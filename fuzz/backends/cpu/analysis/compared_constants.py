"""Finds the constants that a kernel compares with, and the values of its inputs at which they are met.

Each comparison with a constant is followed back through operations that can be inverted: `2 * x + 1 > 25.5` turns at
x = 12.25, and a comparison of the bits of x shifted by 23 at the float that has those bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

from fuzz.backends.cpu.analysis.dataflow import has_many_values
from fuzz.backends.cpu.frontend.ir import FuncOp, Op, Value, walk
from fuzz.backends.cpu.frontend.literals import from_bits
from fuzz.backends.cpu.frontend.types import Type

Number = int | float
COMPARISONS = ("arith.cmpi", "arith.cmpf")
BOUNDS = tuple(f"arith.{name}" for name in ("maxnumf", "minnumf", "maximumf", "minimumf", "maxsi", "minsi", "maxui"))
FORMATS = {"f16": "e", "f32": "f", "f64": "d"}
STEPS = 8
"""Operations that are inverted at most."""
LEFT: dict[str, Callable[[Number, Number], Number]] = {
    "arith.addi": lambda c, k: c - k,
    "arith.addf": lambda c, k: c - k,
    "arith.subi": lambda c, k: c + k,
    "arith.subf": lambda c, k: c + k,
    "arith.muli": lambda c, k: int(c) // int(k),
    "arith.mulf": lambda c, k: c / k,
    "arith.divf": lambda c, k: c * k,
    "arith.divsi": lambda c, k: c * k,
    "arith.divui": lambda c, k: c * k,
    "arith.remsi": lambda c, k: c,
    "arith.remui": lambda c, k: c,
    "arith.shli": lambda c, k: int(c) >> int(k),
    "arith.shrsi": lambda c, k: int(c) << int(k),
    "arith.shrui": lambda c, k: int(c) << int(k),
    "arith.xori": lambda c, k: int(c) ^ int(k),
}
"""What `x` is where `x op k` is c."""
RIGHT: dict[str, Callable[[Number, Number], Number]] = {
    "arith.addi": LEFT["arith.addi"],
    "arith.addf": LEFT["arith.addf"],
    "arith.subi": lambda c, k: k - c,
    "arith.subf": lambda c, k: k - c,
    "arith.muli": LEFT["arith.muli"],
    "arith.mulf": LEFT["arith.mulf"],
    "arith.divf": lambda c, k: k / c,
}
"""What `x` is where `k op x` is c."""
ALONE: dict[str, Callable[[Number], Number]] = {
    "arith.negf": lambda c: -c,
    "math.sqrt": lambda c: c * c,
    "math.rsqrt": lambda c: 1 / (c * c),
    "math.exp": lambda c: math.log(c),
    "math.exp2": lambda c: math.log2(c),
    "math.log": lambda c: math.exp(c),
    "math.log2": lambda c: 2.0**c,
}
"""What `x` is where `op x` is c."""


def compared_numbers(function: FuncOp) -> list[Number]:
    """Numbers at which a comparison, a minimum or a maximum of the kernel may turn, in order, each once; all finite."""
    producers = {result: op for _, op in walk(function.blocks) for result in op.results}
    numbers: set[Number] = set()
    for _, op in walk(function.blocks):
        if op.name not in (*COMPARISONS, *BOUNDS):
            continue
        for value, other in (op.operands[:2], op.operands[1::-1]):
            constant = constant_number(producers, other)
            if constant is not None:
                numbers.update(follow_back(producers, value, constant))
    return sorted((number for number in numbers if is_usable(number)), key=lambda number: (abs(number), number))


def is_usable(number: Number) -> bool:
    return math.isfinite(number) and abs(number) < 2.0**1000


def constant_number(producers: dict[Value, Op], value: Value) -> Number | None:
    """The number that all lanes of a value are, or None."""
    op = producers.get(value)
    if op is None or op.name != "arith.constant" or has_many_values(op):
        return None
    text, element = str(op.attributes["value"]), value.type.element
    if text in ("true", "false"):
        return None
    if not value.type.is_float:
        return int(text, 0)
    number = from_bits(int(text, 16), element) if text.startswith("0x") else float(text)
    return number if math.isfinite(number) else None


def follow_back(producers: dict[Value, Op], value: Value, number: Number) -> Iterator[Number]:
    """The number that a value is compared with, then what the values that it is made of are where it is that number."""
    yield number
    for _ in range(STEPS):
        op = producers.get(value)
        step = None if op is None else invert(producers, op, number)
        if step is None:
            return
        value, number = step
        yield number


def invert(producers: dict[Value, Op], op: Op, number: Number) -> tuple[Value, Number] | None:
    """An operand of the operation, and what it is where the result is that number."""
    try:
        if op.name in ("tt.bitcast", "arith.bitcast"):
            return op.operands[0], reinterpret(number, op.result.type, op.operands[0].type)
        if op.name in ALONE:
            return op.operands[0], ALONE[op.name](number)
        if op.definition.keeps_value or op.definition.index_map is not None:
            return op.operands[0], number
        if op.name in LEFT and (by := constant_number(producers, op.operands[1])) is not None:
            return op.operands[0], LEFT[op.name](number, by)
        if op.name in RIGHT and (by := constant_number(producers, op.operands[0])) is not None:
            return op.operands[1], RIGHT[op.name](number, by)
    except (ArithmeticError, ValueError):
        return None
    return None


def reinterpret(number: Number, old: Type, new: Type) -> Number:
    """The number of another type that has the same bits."""
    if new.is_float and not old.is_float:
        return from_bits(int(number) & ((1 << new.bits) - 1), new.element)
    if old.is_float and not new.is_float and old.element in FORMATS:
        return int.from_bytes(struct.pack("<" + FORMATS[old.element], number), "little")
    return number


class ComparedConstants:
    """The numbers that the kernels of this process compare with, in the order in which they were first loaded."""

    def __init__(self) -> None:
        self.numbers: list[Number] = []

    def add(self, numbers: list[Number]) -> None:
        self.numbers += [number for number in numbers if number not in self.numbers]


constants = ComparedConstants()
