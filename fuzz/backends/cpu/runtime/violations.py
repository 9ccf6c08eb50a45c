"""Describes what a kernel did wrong: accesses to memory, and assertions that failed."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

PROBLEMS = ("out-of-bounds", "unwritten", "conflict", "race", "overflow", "failed")
"""In the order of the C enumeration in prelude.c. `failed` is an assertion (`Failure`), not an access."""

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Violation:
    """One access that is wrong. `kind` is load, store or atomic; `offset` counts elements from the argument's data
    pointer, and is an address where the pointer was read from memory (`argument` is then empty). `other` is the other
    program of a conflict or race, `cause` the place (file:line) of the arithmetic that wrapped around, where that is
    another line than the access."""

    kernel: str
    file: str
    line: int
    argument: str
    kind: str
    program: Program
    lane: tuple[int, ...]
    offset: int
    size: int
    problem: str = "out-of-bounds"
    other: Program | None = None
    cause: str = ""

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        where = f"{self.file}:{self.line}, program {self.program}, lane {self.lane}"
        text = f"{self.description} in kernel {self.kernel} at {where}"
        return f"{text}: {source}" if source else text

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for the same mistake in other lanes and programs."""
        return self.problem, self.kernel, self.file, self.line, self.kind, self.argument

    @property
    def description(self) -> str:
        access = f"{self.kind} of {self.size} bytes at element {self.offset} of argument {self.argument!r}"
        if not self.argument:
            access = f"{self.kind} of {self.size} bytes at {self.offset:#x}, which a pointer from memory led to"
        other = "another program" if self.other is None else f"program {self.other}"
        match self.problem:
            case "unwritten":
                return f"read of memory that nobody wrote: {access}"
            case "conflict":
                return f"write conflict: {other} of the same launch stored another value before this {access}"
            case "race":
                seen = "stored what is read by" if self.kind == "load" else "loaded what is overwritten by"
                return f"race: {other} of the same launch {seen} this {access}"
            case "overflow":
                where = f" (computed at {self.cause})" if self.cause else ""
                return f"int32 overflow in the offset{where} of this {access}"
        return f"out-of-bounds {access}"


class MemoryFault(RuntimeError):
    """A kernel accessed memory in a way that is a mistake: one of PROBLEMS."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class OutOfBounds(MemoryFault):
    """A kernel accessed memory outside of an argument."""


@dataclass(frozen=True)
class Failure:
    """One `device_assert` (kind `assert`) or `assume` that was false in one lane of one program."""

    kernel: str
    file: str
    line: int
    kind: str
    message: str
    program: tuple[int, int, int]
    lane: tuple[int, ...]

    def __str__(self) -> str:
        problem = "device_assert failed" if self.kind == "assert" else "tl.assume of a false condition"
        text = f"{problem} in kernel {self.kernel} at {self.file}:{self.line}, program {self.program}, lane {self.lane}"
        details = [self.message, linecache.getline(self.file, self.line).strip()]
        return ": ".join([text, *(detail for detail in details if detail)])


class DeviceAssertion(RuntimeError):
    """A kernel's assertion failed. As on a GPU nothing after it ran; also inside `observe()`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure
