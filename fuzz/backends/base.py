"""Defines what a backend is: a way to run a Case. Everything that depends on a device stands here and in its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fuzz.model.case import Case
from fuzz.model.outcome import Access, Returned

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Pointer:
    """An argument of a launch that is an address: its slot, the addresses from `start` to `end` that it points to, and
    the slot that holds the distance of its shadow, 0 where it has none."""

    slot: int
    start: int
    end: int
    shadow: int = 0


class RunOrder(NamedTuple):
    """The seeds of the orders in which a launch runs its programs and combines the elements of sums: None and 0 leave
    them as they are. A backend that cannot permute them ignores it."""

    programs: int | None = None
    sums: int = 0


class RecordedLaunch(Protocol):
    """A launch that can be repeated with other addresses. `pointers` is None where it cannot.

    `numbers` are the integers among the other arguments of which the kernel may make addresses.
    """

    @property
    def pointers(self) -> Sequence[Pointer] | None: ...
    @property
    def numbers(self) -> Sequence[int]: ...

    def repeat(
        self, count: int, offsets: Mapping[int, np.ndarray], orders: Sequence[RunOrder] = ()
    ) -> np.ndarray | None:
        """Launches `count` times. By slot, `offsets`, int64 (count), are added to the address that it holds.

        `orders` gives the order of each launch; where it is empty all have the usual one.

        Returns, uint8 (count), which launches had something to report; None where the backend has no reports.
        """


class ShadowedMemory(Protocol):
    """Memory from `start` to `end` with a shadow of one byte for each of its bytes."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def shadow(self) -> np.ndarray: ...


class CountedOutcome(Protocol):
    """How often a branch, loop, select or mask (`kind`) at a line of a kernel had `outcome`: one byte of counters."""

    @property
    def kernel(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def outcome(self) -> str: ...


OperationHook = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
"""Is called after every operation of torch with the operation, its arguments and keywords, and its result."""


@dataclass
class Session:
    """What a backend observed while a call ran.

    `accesses` gives the wrong accesses and `kernels` the names of the kernels launched, in order. `on_operation` is to
    be called after every operation of torch. `launches` are the launches, for repeating them, and `shadowed` the
    allocations whose shadows they were given. `read_counters` gives the counters of what the kernels did since the
    session began, empty where the backend does not count.
    """

    accesses: Callable[[], list[Access]] = list
    kernels: Callable[[], list[str]] = list
    on_operation: OperationHook | None = None
    launches: Sequence[RecordedLaunch] = ()
    shadowed: Sequence[ShadowedMemory] = ()
    read_counters: Callable[[], bytes] = bytes


FIRST_PLANS = 256
"""Plans at the start of a run that have one replica each, or few."""
DOUBLING_PLANS = 128
"""Plans after those until a plan may have twice as many replicas, and again until four times as many, .."""


class ReplicaLimits(NamedTuple):
    """Most replicas of a plan, most elements that they may have together, and most replicas of the first plans.

    Later plans may have twice as many, and twice as many again, `doublings` times in all.
    """

    replicas: int
    elements: int
    first: int = 1
    doublings: int = 0

    def at(self, number: int) -> ReplicaLimits:
        """The limits of an engine's plan `number`: twice as many after 384 plans, four times as many after 512, ..

        Sizes, layouts and dtypes break kernels soon, and plans of many replicas are fewer; values alone are rarer.
        """
        times = 1 << min(self.doublings, max(0, (number - FIRST_PLANS) // DOUBLING_PLANS))
        return self._replace(replicas=self.replicas * times, elements=self.elements * times)


class Backend:
    """How kernels run on one kind of device: what the rest of the project has to know of a device stands here.

    A backend says what differs from a processor that runs launches at once and observes nothing.
    """

    name: str
    device = "cpu"
    """torch's name of the device."""
    selectable = True
    """Whether a person can choose it; others only cross-check."""
    is_accelerator = False
    """Whether the device is beside the processor, with memory that processes share and where compilation pays."""
    needs_durable_journal = False
    """Whether a kernel can take the machine down, so that a campaign writes each group to disk before it runs."""
    compiles_without_device = False
    """Whether `compile_only` gives a backend."""
    forks_loaded_processes = False
    """Whether a process may be forked once it has loaded a target: nothing that loading does initialises the device."""
    permutes_programs = False
    """Whether a session's `order` changes in which order the programs of a launch run, one after the other."""
    permutes_sums = False
    """Whether `LaunchOptions.reduction_order` changes the order in which kernels combine the elements of sums."""
    checks_accesses = False
    """Whether every access of a kernel is checked and one outside memory left out, so that it harms nothing else."""
    arithmetic = "libm"
    """The table of errors of elementary functions (reference/envelope/precision.py) that holds for its kernels."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Variables that a process must be started with to use it."""
    import_environment: Mapping[str, str] = MappingProxyType({})
    """Variables while the server of workers imports modules, so that none of them initialises the device."""
    load_environment: Mapping[str, str] = MappingProxyType({})
    """Variables while a target is loaded, and after that in workers, so that neither uses another backend's device."""

    @staticmethod
    def replica_limits(*, guided: bool) -> ReplicaLimits:
        """How many replicas of a plan run together: of a random plan as many as cost little more than one.

        Of a plan of the other engines, which are guided, fewer: the next plan builds on what the first ones show.
        """
        return ReplicaLimits(16 if guided else 32, 1 << 13, doublings=2)

    def unavailable_reason(self) -> str:
        """Why this backend cannot run on this machine, in one line; empty where it can."""
        return ""

    def fork_reason(self) -> str:
        """Why this process, forked from another one, cannot use the device, in one line; empty where it can."""
        return ""

    def cross_check_refusal(self, case: Case) -> str:
        """Why this backend cannot cross-check a case, in a few words; empty where it can."""
        return ""

    def prepare(self, counters: bool = False) -> None:
        """Sets up once, for good, what sessions would each set up: for a process that does nothing else.

        With `counters` what kernels do is counted from then on, where the backend can.
        """

    def compile_only(self) -> Backend:
        """A backend that compiles what this one would launch, and needs no device. Its `prepare` may raise OSError or
        RuntimeError where it cannot."""
        raise NotImplementedError(self.name)

    def front_end_only(self) -> AbstractContextManager[None]:
        """Inside, a backend of `compile_only` goes no further than what finds most kernels that do not compile."""
        return nullcontext()

    def collect_feedback(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What is new for the search in this process: numbers of features of what kernels did in a run, and
        constants that kernels compare with. Nothing is returned twice."""
        return (), ()

    def counted_outcomes(self) -> Sequence[CountedOutcome]:
        """What each byte of a call's counters counts, in order; empty where the backend does not count."""
        return ()

    def session(self, order: int | None) -> AbstractContextManager[Session]:
        """Runs what is inside on this backend; `order` permutes the order of programs where the backend can."""
        return nullcontext(Session())

    def observe_races(self) -> AbstractContextManager[None]:
        """Sessions inside also report loads of what another program of the launch stores, where the backend can."""
        return nullcontext()

    def uninstrumented(self) -> AbstractContextManager[None]:
        """Runs what is inside on this backend at full speed: a wrong access raises, if it is noticed at all.

        Autotuners take a configuration as in a session: one that is chosen by time may be another one each time.
        """
        return nullcontext()

    def synchronize(self) -> None:
        """Waits until everything launched has ended, and raises what it raised."""

    def release_memory(self) -> None:
        """Gives memory of the device that no tensor uses back, where it is so much that other processes lack it."""

    def is_fatal(self, error: BaseException) -> bool:
        """Whether the process cannot go on after this error."""
        return False

    def is_unusable(self, error: BaseException) -> bool:
        """Whether this error says that nothing can use the device now, whatever runs there: others hold it, or its
        hardware fails."""
        return False

    def external_oom_reason(self, error: BaseException) -> str:
        """Why memory ran out through no fault of the kernel: other processes hold it. Empty where that is not known."""
        from fuzz.backends.shortage import describe_full_memory

        return describe_full_memory(error)


def portable_path(path: str) -> str:
    """A source file's path as it is on other machines too: inside its package, or the folder that the run began in.

    A package is in site-packages, or in another folder of `sys.path`, as a checkout or a pip --target is.
    """
    _, installed, inside = path.rpartition("site-packages/")
    if installed:
        return inside
    here = os.getcwd() + os.sep
    if path.startswith(here):
        return path.removeprefix(here)
    below = (path.removeprefix(folder.rstrip(os.sep) + os.sep) for folder in sys.path if folder)
    packaged = (part for part in below if part != path and os.sep in part)
    return min(packaged, key=len, default=path)
