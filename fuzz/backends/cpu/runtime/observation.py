"""The observation of launches, and which instruments are on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fuzz.backends.cpu.instruments import Instruments, ordered
from fuzz.backends.cpu.runtime.recorded_launch import RecordedLaunch, permutation
from fuzz.backends.cpu.runtime.violations import Violation
from fuzz.backends.triton_host.knobs import knobs

if TYPE_CHECKING:
    from fuzz.backends.cpu.runtime.shadow import Memory


@dataclass
class Log:
    """What happened inside `observe()`: the first violations of all and of each place, how many there were, and the
    kernels launched."""

    violations: list[Violation] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    launched: list[RecordedLaunch] = field(default_factory=list)
    count: int = 0

    def take(self, found: Sequence[Violation], most: int) -> None:
        """Up to so many of all, beyond them those of places that have none."""
        places = {one.place for one in self.violations}
        for one in found:
            if len(self.violations) < most or one.place not in places:
                self.violations.append(one)
                places.add(one.place)


@dataclass(frozen=True)
class Observation:
    """How launches are to run at the moment."""

    order: int | None
    reports: int
    threads: int
    instruments: Instruments
    memory: Memory | None
    log: Log

    def permutation(self, programs: int) -> Any:
        """The order of programs as an array, or None for their own order."""
        return None if self.order is None or programs < 2 else permutation(self.order, programs)


OBSERVED: ContextVar[Observation | None] = ContextVar("observed", default=None)


def instruments() -> Instruments:
    """Those that launches have at the moment."""
    watch = OBSERVED.get()
    return knobs.instruments if watch is None else watch.instruments


@contextmanager
def observe(
    order: int | None = None,
    reports: int = 16,
    *,
    unwritten: bool | Memory = False,
    conflicts: bool = False,
    races: bool = False,
    overflow: bool = False,
    counters: bool = False,
    threads: int = 1,
) -> Iterator[Log]:
    """Inside, what is wrong with an access does not raise: loads out of bounds give NaN or the largest integer, stores
    and atomics out of bounds are dropped, and `log.violations` holds the first `reports`, and the first of each other
    place, up to 16 a launch. `order` permutes the programs of every launch by a seeded permutation (-1 reverses them);
    with `threads` that many programs run at once.

    The instruments (see instruments.py) are added to those of the knobs: `unwritten` watches what is allocated inside
    (a `Memory` is one that somebody else tells of torch's operations), `conflicts` and `races` compare programs of one
    launch, `overflow` checks the arithmetic of offsets, `counters` counts into `cpu.counters`."""
    if threads < 1:
        raise ValueError(f"threads is at least 1, not {threads}")
    asked = {"conflicts": conflicts, "races": races, "overflow": overflow, "counters": counters}
    asked |= {"unwritten": unwritten is not False, "threads": threads > 1}
    chosen = ordered([*knobs.instruments, *(name for name, wanted in asked.items() if wanted)])
    memory, watching = watched(unwritten) if "unwritten" in chosen else (None, nullcontext())
    log = Log()
    token = OBSERVED.set(Observation(order, reports, threads, chosen, memory, log))
    try:
        with watching:
            yield log
    finally:
        OBSERVED.reset(token)


def watched(memory: bool | Memory) -> tuple[Memory, AbstractContextManager[Any]]:
    """The memory to use, and what tells it of torch's operations."""
    from fuzz.backends.cpu.runtime.shadow import Memory, Watching

    if isinstance(memory, Memory):
        return memory, nullcontext()
    memory = Memory()
    return memory, Watching(memory)
