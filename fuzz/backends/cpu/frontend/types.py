"""Represents the types of values in TTIR, Triton's intermediate representation, and what they are in C."""

from __future__ import annotations

import math
from dataclasses import dataclass

EIGHT_BIT_FLOATS = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")
NARROW = ("f16", "bf16", *EIGHT_BIT_FLOATS)
FLOATS = (*NARROW, "f32", "f64")
INTS = ("i1", "i8", "i16", "i32", "i64")
SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
SIZES |= dict.fromkeys(EIGHT_BIT_FLOATS, 1)


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar (no shape) or a tensor; a pointer's element is `*` and the element pointed to."""

    element: str
    shape: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return bool(self.shape)

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("*")

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    @property
    def is_narrow(self) -> bool:
        """Held in C as float and rounded after every operation."""
        return self.element in NARROW

    @property
    def pointee(self) -> str:
        return self.element[1:]

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return 8 if self.is_pointer else SIZES[self.element]

    @property
    def bits(self) -> int:
        return 1 if self.element == "i1" else 8 * self.size

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def c(self) -> str:
        """The C type that holds one element."""
        return c_type(self.element)

    @property
    def unsigned(self) -> str:
        """The C type that holds one integer element as unsigned."""
        return "u8" if self.element == "i1" else "u" + self.c[1:]

    def with_element(self, element: str) -> Type:
        return Type(element, self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        return Type(self.element, shape)

    def __str__(self) -> str:
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.element}>" if self.shape else self.element


def c_type(element: str) -> str:
    """The C type of one element: addresses are integers, floats of 8 and 16 bits are held as float."""
    if element.startswith("*"):
        return "i64"
    return "f32" if element in NARROW else element
