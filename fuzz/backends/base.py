"""Backend: a way to run a Case. One method opens a session in which launches are observed; the rest is shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fuzz.model.outcome import Access, Returned


@dataclass(frozen=True)
class Pointer:
    """An argument of a launch that is an address: its slot, the addresses from `start` to `end` that it stands for, and
    the slot of the distance of its shadow, 0 where it has none."""

    slot: int
    start: int
    end: int
    shadow: int = 0


class Launched(Protocol):
    """A launch that can be repeated with other addresses. `pointers` is None where it cannot."""

    @property
    def pointers(self) -> Sequence[Pointer] | None: ...

    def repeat(self, count: int, moved: Mapping[int, np.ndarray], order: int | None) -> np.ndarray | None:
        """So many launches; `moved` tells by slot how far its value is moved in each. Which of them had something to
        report, None where the backend has no reports."""


class Watched(Protocol):
    """Memory from `start` to `end` with a shadow, a byte for each byte."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def shadow(self) -> np.ndarray: ...


@dataclass
class Session:
    """What a backend saw while a call ran: accesses that are wrong, and kernels launched, in order. `after` is to be
    told of every operation of torch: the operation, its arguments and keywords, its result. `launched` are the launches
    as the backend can repeat them, `watched` the allocations whose shadows they were given.
    `counted` are the counters of what kernels did since it began, empty where nothing counts."""

    accesses: Callable[[], list[Access]] = list
    kernels: Callable[[], list[str]] = list
    after: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None] | None = None
    launched: Sequence[Launched] = ()
    watched: Sequence[Watched] = ()
    counted: Callable[[], bytes] = bytes


class Backend(Protocol):
    """How kernels run on one kind of device. `device` is torch's name for it."""

    name: str
    device: str

    def unusable(self) -> str:
        """Why this backend cannot run on this machine, in one line; empty where it can."""

    def prepare(self, counters: bool = False) -> None:
        """Sets up once, for good, what sessions would each set up: for a process that does nothing else.

        With `counters` what kernels do is counted from then on, where the backend can.
        """

    def told(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What is new in this process for the search: features of what kernels did in a run, and numbers that kernels
        compare with. What was told once is not told again."""

    def session(self, order: int | None) -> AbstractContextManager[Session]:
        """Runs what is inside on this backend; `order` permutes the order of programs where the backend can."""

    def unwatched(self) -> AbstractContextManager[None]:
        """Runs what is inside on this backend at full speed: what is wrong with an access raises, if it is seen."""

    def finish(self) -> None:
        """Waits until everything launched has ended, and raises what it raised."""

    def fatal(self, error: BaseException) -> bool:
        """Whether the process cannot go on after this error."""

    def crowded(self, error: BaseException) -> str:
        """Why it is not the kernel's fault that memory ran out: others hold it. Empty where it is, or nobody knows."""
