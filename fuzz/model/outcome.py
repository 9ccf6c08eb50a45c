"""Defines the outcomes that running a case on a backend may have.

Returned       every call came back; holds what each produced
Rejected       the launcher refused the input before any kernel ran
Raised         the launcher or a kernel raised
CompileError   a kernel does not compile
OutOfMemory    memory ran out
NotRun         this machine lacked what the case needs, through no fault of the kernel
Died           the worker process ended by a signal or by itself
Hung           the watchdog's time ran out
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Access:
    """One access that is wrong. `where` is one readable line; `source_line` is file:line. `kind` of an access outside a
    buffer is load, store or atomic; of one inside `unwritten` (a load of what nobody wrote), `conflict` (programs
    store different values), `race` (a program loads what another one stores) or `overflow` (of its offset)."""

    buffer: str
    kind: str
    where: str
    source_line: str = ""


@dataclass(frozen=True)
class Write:
    """Bytes of an argument, or of an earlier call's output, that changed. `first` is the index of the first changed
    element, got and want its bits."""

    argument: str
    first: tuple[int, ...]
    got: int
    want: int
    count: int


@dataclass(frozen=True)
class CallResult:
    """What one call produced: outputs by name (tensors of the backend's device) and what it did to memory.

    `overwritten` are outputs of earlier calls that it changed, each with the index of its call. `counted` are the
    counters of what its kernels did, empty where nothing counts.
    """

    outputs: Mapping[str, Any]
    accesses: tuple[Access, ...] = ()
    writes: tuple[Write, ...] = ()
    unwritten: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    aliases: tuple[tuple[str, str], ...] = ()
    kernels: tuple[str, ...] = ()
    counted: bytes = b""
    overwritten: tuple[tuple[int, Write], ...] = ()


@dataclass(frozen=True)
class Returned:
    calls: tuple[CallResult, ...]


@dataclass(frozen=True)
class Rejected:
    message: str


@dataclass(frozen=True)
class Raised:
    """`source_line` is file:line of the code, neither Triton's, torch's nor of this package, that raised."""

    message: str
    source_line: str = ""


@dataclass(frozen=True)
class CompileError:
    message: str


@dataclass(frozen=True)
class OutOfMemory:
    message: str


@dataclass(frozen=True)
class NotRun:
    """The case may well run later or elsewhere: other processes hold the memory, or the C compiler was too slow."""

    message: str


@dataclass(frozen=True)
class Died:
    """`signal` is the signal's name, or the exit status where there was none."""

    signal: str


@dataclass(frozen=True)
class Hung:
    seconds: float


NOT_RUN = "not run: "
"""How the words begin that describe what could not run."""
Outcome = Returned | Rejected | Raised | CompileError | OutOfMemory | NotRun | Died | Hung


def describe(outcome: Outcome) -> str:
    """One line for people."""
    match outcome:
        case Returned():
            return "returned"
        case Rejected(message):
            return f"rejected: {message}"
        case Raised(message):
            return f"raised {message}"
        case CompileError(message):
            return f"does not compile: {message}"
        case OutOfMemory(message):
            return f"ran out of memory: {message}"
        case NotRun(message):
            return NOT_RUN + message
        case Died(signal):
            return f"the worker process died of {signal}"
        case Hung(seconds):
            return f"did not return within {seconds:g} s"
