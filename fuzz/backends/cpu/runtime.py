"""Violations, and the observation of launches."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy


@dataclass(frozen=True)
class Violation:
    """One access outside of its argument's view. `offset` counts elements from the argument's data pointer."""

    kernel: str
    file: str
    line: int
    argument: str
    kind: str
    program: tuple[int, int, int]
    lane: tuple[int, ...]
    offset: int
    size: int

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        text = (
            f"out-of-bounds {self.kind} of {self.size} bytes at element {self.offset} of argument {self.argument!r}"
            f" in kernel {self.kernel} at {self.file}:{self.line}, program {self.program}, lane {self.lane}"
        )
        return f"{text}: {source}" if source else text


class OutOfBounds(RuntimeError):
    """A kernel accessed memory outside of an argument."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


@dataclass
class Log:
    """What happened inside `observe()`: the first violations, how many there were, and the kernels launched."""

    violations: list[Violation] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class Observation:
    """How launches are to run at the moment."""

    order: int | None
    reports: int
    log: Log

    def permutation(self, programs: int) -> Any:
        """The order of programs as an array, or None for their own order."""
        return None if self.order is None or programs < 2 else permutation(self.order, programs)


@functools.lru_cache(maxsize=256)
def permutation(seed: int, programs: int) -> Any:
    """A seeded permutation; -1 is the reverse."""
    if seed == -1:
        return numpy.arange(programs - 1, -1, -1, dtype=numpy.int64)
    return numpy.random.default_rng(seed).permutation(programs).astype(numpy.int64)


OBSERVED: ContextVar[Observation | None] = ContextVar("observed", default=None)


@contextmanager
def observe(order: int | None = None, reports: int = 16) -> Iterator[Log]:
    """Inside, accesses out of bounds do not raise: loads give NaN or the largest integer, stores and atomics are
    dropped, and `log.violations` holds the first `reports`. `order` permutes the programs of every launch by a seeded
    permutation (-1 reverses them)."""
    log = Log()
    token = OBSERVED.set(Observation(order, reports, log))
    try:
        yield log
    finally:
        OBSERVED.reset(token)
