"""Explore: the process in which libFuzzer (by atheris) drives a target's strategy, for the engine of that name.

libFuzzer takes bytes, of which Hypothesis draws a plan; the plan is handed over, then its kernels run here once. What
that covers is told by counters of 8 bits: those of the launcher's Python, which atheris instruments, and those of the
compiled kernels, in one buffer that is registered once. libFuzzer is a loop that never returns, so it has a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from queue import Queue
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings

from fuzz.backends.base import Backend
from fuzz.backends.cpu.runtime.counters import features
from fuzz.backends.execute import FatalError, run
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import Outcome, Returned
from fuzz.oracles.examine import set_up_process
from fuzz.search.engines.atheris.engine import AtherisConfig
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.literals import functions
from fuzz.search.engines.mutations import KNOWN, Workshop, edited
from fuzz.search.engines.random import BYTES, choices
from fuzz.search.strategies import BUDGETS, cases
from fuzz.target.spec import Launcher, Target
from fuzz.worker.channel import LastResponse

HANDLER = "fuzz.search.engines.atheris.process:make_handler"
"""What the process runs."""
HEAD = 8
"""Bytes at the start that say whether and how a plan is edited to hold numbers of the dictionary."""
CELLS = 1 << 14
"""Bytes of the shared buffer."""
ENDLESS = 10**6
"""Seconds after which libFuzzer ends; it waits while nobody asks for a plan, and takes 0 for none at all."""
FOUNDERS = 64
"""Inputs that libFuzzer begins with."""


def make_handler(exploration: AtherisConfig) -> Callable[[Any], Case | LastResponse]:
    """The handler, any request -> the next plan."""
    target, launcher, backend = set_up_process(exploration.config)
    explorer = Explorer(exploration, target, launcher, backend)
    explorer.start()

    def handle(request: Any) -> Case | LastResponse:
        try:
            return explorer.next()
        except FatalError:
            return LastResponse(None)

    return handle


@dataclass
class Explorer:
    """libFuzzer in a thread, which stops after each plan until the next one is asked for."""

    exploration: AtherisConfig
    target: Target
    launcher: Launcher
    backend: Backend
    plans: Queue[Case | BaseException] = field(default_factory=lambda: Queue(1))
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    buffer: Any = field(default_factory=lambda: (ctypes.c_uint8 * CELLS)())
    _drawn: list[Case] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dictionary = Dictionary()
        self.dictionary.add(self.exploration.numbers)

        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(cases(self.target, BUDGETS))
        def collect(case: Case) -> None:
            self._drawn.append(case)

        self.draw: Callable[[bytes], Any] = collect.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def start(self) -> None:
        """Writes the first inputs and starts libFuzzer."""
        for number in range(FOUNDERS):
            text = f"{self.exploration.seed}/atheris/{number}"
            (self.exploration.folder / f"{number:04}").write_bytes(bytes(HEAD) + choices(text))
        threading.Thread(target=self._fuzz, daemon=True).start()

    def next(self) -> Case:
        """The next plan. Raises what ended libFuzzer."""
        self.asked.release()
        plan = self.plans.get()
        if isinstance(plan, BaseException):
            raise plan
        return plan

    def _fuzz(self) -> None:
        try:
            # What libFuzzer writes is for people who started it; and atheris sets a handler of signals, which only a
            # main thread may.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.signal = lambda *_: None
            fuzzer = instrumented(self.launcher)
            fuzzer.Setup([sys.argv[0], *options(self.exploration)], self._one)
            self._table = register(self.buffer)
            fuzzer.Fuzz()
        except BaseException as error:
            self.plans.put(error)

    def _one(self, data: bytes) -> int:
        """One input: its plan is handed over, then run. -1 keeps libFuzzer from keeping what is no plan."""
        try:
            plan = self._plan(data)
            if plan is None:
                return -1
            self.asked.acquire()
            self.plans.put(plan)
            # Asked for again, the plan has arrived: whatever it does to this process, somebody knows of it.
            self.asked.acquire()
            self.asked.release()
            self._cover(run(self.target, self.launcher, plan.calls, self.backend))
        except UsageError:
            return -1
        except FatalError as fatal:
            self.plans.put(fatal)
        except BaseException as error:
            self.plans.put(error)
        return 0

    def _plan(self, data: bytes) -> Case | None:
        self._drawn.clear()
        self.draw(data[HEAD:])
        if not self._drawn:
            return None
        if not data or not data[0]:
            return self._drawn[-1]
        shop = Workshop(self.target, self.dictionary, Random(data[:HEAD]))
        return edited(self._drawn[-1], shop, KNOWN, 1 + data[0] % 3)

    def _cover(self, outcome: Outcome) -> None:
        """Puts the kernels' counters into the buffer that libFuzzer reads."""
        from fuzz.backends import cpu

        if isinstance(outcome, Returned):
            self.dictionary.add(self.backend.collect_feedback(outcome)[1])
            for call in outcome.calls:
                for number in features(call.counted, cpu.counters.sites, self._numbers):
                    self.buffer[number % CELLS] = 1


def options(exploration: AtherisConfig) -> list[str]:
    """libFuzzer's options: it never ends by itself, writes nothing but its inputs, and leaves signals alone."""
    signals = ("segv", "bus", "abrt", "ill", "fpe", "int", "term", "xfsz", "usr1", "usr2")
    quiet = [f"-handle_{name}=0" for name in signals]
    limits = [f"-timeout={ENDLESS}", *(f"-{name}=0" for name in ("rss_limit_mb", "malloc_limit_mb", "detect_leaks"))]
    limits += ["-reload=0", "-verbosity=0", f"-exact_artifact_path={os.devnull}"]
    size = [f"-max_len={HEAD + BYTES}", "-len_control=0", f"-seed={exploration.seed + 1}"]
    return [*quiet, *limits, *size, str(exploration.folder)]


def instrumented(launcher: Launcher) -> Any:
    """atheris, once the launcher's Python counts what it covers; kernels count on their own."""
    import atheris

    for function in functions(launcher):
        if not hasattr(function.__globals__.get(function.__name__), "fn"):
            atheris.instrument_func(function)
    return atheris


def register(buffer: Any) -> Any:
    """Tells libFuzzer of the buffer: its counters, and a table that says each is a place of its own. Keep the table."""
    core = ctypes.CDLL(import_module("atheris.core_with_libfuzzer").__file__)
    start, count = ctypes.addressof(buffer), len(buffer)
    table = (ctypes.c_size_t * (2 * count))(*(value for place in range(count) for value in (start + place, 0)))
    core.__sanitizer_cov_8bit_counters_init(ctypes.c_void_p(start), ctypes.c_void_p(start + count))
    first = ctypes.addressof(table)
    core.__sanitizer_cov_pcs_init(ctypes.c_void_p(first), ctypes.c_void_p(first + ctypes.sizeof(table)))
    return table
