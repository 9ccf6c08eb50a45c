"""Defines what a worker observes of cases for the coverage of their target, and the sum of such observations."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

Arc = tuple[int, int]
"""From one line to another of the same file, as coverage.py numbers them: a negative one is an entry or an exit."""
Constants = tuple[tuple[str, object], ...]
"""The names and values of a kernel's constants of compilation."""


@dataclass(frozen=True, order=True)
class SourceFunction:
    """A function: its file, the line where its definition or its first decorator begins, and its qualified name."""

    file: str
    line: int
    name: str


class CompiledNode(NamedTuple):
    """A statement of a kernel that was compiled; or with an outcome, the branch of a condition that code was made for.

    A condition that is no constant of compilation has both outcomes. The column counts from that of the `def`.
    """

    line: int
    column: int
    outcome: bool | None = None


@dataclass(frozen=True, order=True)
class Site:
    """One branch, loop, select or mask of a kernel, which is counted, with one of its outcomes."""

    file: str
    line: int
    kernel: str
    kind: str
    outcome: str


@dataclass(frozen=True, order=True)
class TensorKind:
    """What is observed of a tensor that a parameter was given."""

    dtype: str
    rank: int
    contiguous: bool


Value = TensorKind | bool | int | float | str | None
"""What is observed of a parameter's value; one that is no number, string or tensor counts by the name of its type."""


@dataclass
class Observations:
    """What ran, from one case or many.

    `called`, `referenced`, `kernels` and `wrapped` are explained at Scope. `happened` and `counted` are sites: those
    that occurred, and all. `constants` are those that each kernel was compiled with, `compiled` what was compiled of
    kernels and of the functions that they inline, `values` those of parameters.
    """

    arcs: dict[str, set[Arc]] = field(default_factory=dict)
    constants: dict[SourceFunction, set[Constants]] = field(default_factory=dict)
    compiled: dict[SourceFunction, set[CompiledNode]] = field(default_factory=dict)
    values: dict[tuple[SourceFunction, str], set[Value]] = field(default_factory=dict)
    called: set[SourceFunction] = field(default_factory=set)
    referenced: set[SourceFunction] = field(default_factory=set)
    kernels: set[SourceFunction] = field(default_factory=set)
    wrapped: set[SourceFunction] = field(default_factory=set)
    counted: set[Site] = field(default_factory=set)
    happened: set[Site] = field(default_factory=set)
    cases: int = 0
    rejected: int = 0

    def add(self, other: Observations) -> None:
        """Adds what another one observed."""
        for name in (each.name for each in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, set):
                mine |= theirs
            elif isinstance(mine, dict):
                for key, found in theirs.items():
                    mine.setdefault(key, set()).update(found)
            else:
                setattr(self, name, mine + theirs)
