"""Observes launches: what is wrong with their accesses goes to a log instead of an exception."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fuzz.backends.cpu.instruments import Instruments, ordered
from fuzz.backends.cpu.runtime.cpu_launch import CpuLaunch, permutation
from fuzz.backends.cpu.runtime.shadow import ShadowMemory, ShadowObserver
from fuzz.backends.cpu.runtime.violations import Violation
from fuzz.backends.started_threads import INHERITED
from fuzz.backends.triton_host.knobs import knobs


@dataclass
class Log:
    """What happened inside `observe()`: the first violations of all and of each place, their number, and the names of
    the kernels launched, in order."""

    violations: list[Violation] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    recorded_launches: list[CpuLaunch] = field(default_factory=list)
    count: int = 0

    def add(self, violations: Sequence[Violation], most: int) -> None:
        """Adds violations up to `most` in all, and beyond them the first of each place."""
        places = {violation.place for violation in self.violations}
        for violation in violations:
            if len(self.violations) < most or violation.place not in places:
                self.violations.append(violation)
                places.add(violation.place)


@dataclass
class Observation:
    """How launches run at the moment; `outer` is the one that it is inside of."""

    order: int | None
    reports: int
    instruments: Instruments
    memory: ShadowMemory | None
    log: Log
    outer: Observation | None
    is_over: bool = False

    def permutation(self, programs: int) -> Any:
        """The order of programs as an array, or None for their own order."""
        return None if self.order is None or programs < 2 else permutation(self.order, programs)


OBSERVATION: ContextVar[Observation | None] = ContextVar("observation", default=None)


def current_observation() -> Observation | None:
    """The innermost that goes on of those that this thread began, or in which it was started."""
    observation = OBSERVATION.get()
    # A thread may go on when those are over in which it was started.
    while observation is not None and observation.is_over:
        observation = observation.outer
    return observation


@contextmanager
def observed_by(observation: Observation) -> Iterator[None]:
    """Inside, this thread's launches are observed, as long as the observation goes on."""
    token = OBSERVATION.set(observation)
    try:
        yield
    finally:
        OBSERVATION.reset(token)


def inherited_observation() -> AbstractContextManager[None] | None:
    """What a thread runs in that this one starts."""
    observation = current_observation()
    return None if observation is None else observed_by(observation)


INHERITED.append(inherited_observation)


def current_instruments() -> Instruments:
    """Those that launches have at the moment."""
    observation = current_observation()
    return knobs.instruments if observation is None else observation.instruments


@contextmanager
def observe(
    order: int | None = None,
    reports: int = 16,
    *,
    unwritten: bool | ShadowMemory = False,
    conflicts: bool = False,
    races: bool = False,
    overflow: bool = False,
    counters: bool = False,
) -> Iterator[Log]:
    """Inside, what is wrong with an access does not raise: loads out of bounds give NaN or the largest integer, stores
    and atomics out of bounds are dropped, and `log.violations` holds the first `reports`, and the first of each other
    place, up to 16 a launch. So it is in threads as well that are started inside. `order` permutes the
    programs of every launch by a seeded permutation (-1 reverses them).

    The instruments (see instruments.py) are added to those of the knobs: `unwritten` watches what is allocated inside
    (the owner of a `ShadowMemory` calls its `after_operation`), `conflicts` and `races` compare programs of one
    launch, `overflow` checks the arithmetic of offsets, `counters` counts into `cpu.counters`."""
    wanted = {"conflicts": conflicts, "races": races, "overflow": overflow, "counters": counters}
    wanted |= {"unwritten": unwritten is not False}
    instruments = ordered([*knobs.instruments, *(name for name, is_wanted in wanted.items() if is_wanted)])
    memory, tracking = track(unwritten) if "unwritten" in instruments else (None, nullcontext())
    log = Log()
    observation = Observation(order, reports, instruments, memory, log, current_observation())
    try:
        with observed_by(observation), tracking:
            yield log
    finally:
        observation.is_over = True


def track(memory: bool | ShadowMemory) -> tuple[ShadowMemory, AbstractContextManager[Any]]:
    """The memory to use, and a context in which it is called after every operation of torch."""
    if isinstance(memory, ShadowMemory):
        return memory, nullcontext()
    memory = ShadowMemory()
    return memory, ShadowObserver(memory)
