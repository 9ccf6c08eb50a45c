"""The process in which libFuzzer (by atheris) drives a target's strategy, for the engine of that name.

libFuzzer takes bytes, of which Hypothesis draws a plan; the plan is handed over, then its kernels run here once. What
that covers is counted in counters of 8 bits: those of the launcher's Python, which atheris instruments, and those of
the compiled kernels, in one buffer that is registered once. libFuzzer is a loop that never returns, so it has a thread.
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

from fuzz.backends.base import Backend
from fuzz.backends.cpu.runtime.counters import features
from fuzz.backends.execute import FatalError, run
from fuzz.backends.reached_functions import find_functions
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import Outcome, Returned
from fuzz.oracles.examine import set_up_process
from fuzz.search.engines.atheris.engine import AtherisConfig
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import WITH_DICTIONARY, MutationContext, mutate
from fuzz.search.engines.random import BYTES, choices, make_drawer
from fuzz.search.strategies import BUDGETS
from fuzz.target.spec import Launcher, Target
from fuzz.worker.channel import LastResponse

HEADER = 8
"""Bytes at the start that say whether and how a plan is mutated to hold numbers of the dictionary."""
COUNTERS = 1 << 14
"""Bytes of the shared buffer."""
TIMEOUT = 10**6
"""Seconds after which libFuzzer ends; it waits between requests, and reads 0 as no time at all."""
INITIAL_INPUTS = 64
"""Inputs that libFuzzer begins with."""


def make_handler(config: AtherisConfig) -> Callable[[Any], Case | LastResponse]:
    """The handler, any request -> the next plan."""
    target, launcher, backend = set_up_process(config.config)
    fuzzer = LibFuzzer(config, target, launcher, backend)
    fuzzer.start()

    def handle(request: Any) -> Case | LastResponse:
        try:
            return fuzzer.next()
        except FatalError:
            return LastResponse(None)

    return handle


@dataclass
class LibFuzzer:
    """Runs libFuzzer in a thread, which waits after each plan until the next one is requested."""

    config: AtherisConfig
    target: Target
    launcher: Launcher
    backend: Backend
    plans: Queue[Case | BaseException] = field(default_factory=lambda: Queue(1))
    requested: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    buffer: Any = field(default_factory=lambda: (ctypes.c_uint8 * COUNTERS)())
    _numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dictionary = Dictionary()
        self.dictionary.add(self.config.numbers)
        self.draw = make_drawer(self.target, BUDGETS)

    def start(self) -> None:
        """Writes the first inputs and starts libFuzzer."""
        for number in range(INITIAL_INPUTS):
            text = f"{self.config.seed}/atheris/{number}"
            (self.config.folder / f"{number:04}").write_bytes(bytes(HEADER) + choices(text))
        threading.Thread(target=self._fuzz, daemon=True).start()

    def next(self) -> Case:
        """The next plan. Raises what ended libFuzzer."""
        self.requested.release()
        plan = self.plans.get()
        if isinstance(plan, BaseException):
            raise plan
        return plan

    def _fuzz(self) -> None:
        try:
            # libFuzzer's output is not for the user of this process, as a traceback is; and atheris sets a handler of
            # signals, which only a main thread may.
            sys.stderr = sys.stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.signal = lambda *_: None
            fuzzer = instrument(self.launcher)
            fuzzer.Setup([sys.argv[0], *options(self.config)], self._run_input)
            self._table = register(self.buffer)
            fuzzer.Fuzz()
        except BaseException as error:
            self.plans.put(error)

    def _run_input(self, data: bytes) -> int:
        """Runs one input: hands its plan over, then runs it. Returns -1, so that libFuzzer drops it, for no plan."""
        try:
            plan = self._plan(data)
            if plan is None:
                return -1
            self.requested.acquire()
            self.plans.put(plan)
            # The next request means that the plan has arrived: the run has it, whatever it does to this process.
            self.requested.acquire()
            self.requested.release()
            self._count_coverage(run(self.target, self.launcher, plan.calls, self.backend))
        except UsageError:
            return -1
        except FatalError as fatal:
            self.plans.put(fatal)
        except BaseException as error:
            self.plans.put(error)
        return 0

    def _plan(self, data: bytes) -> Case | None:
        plan = self.draw(data[HEADER:])
        if plan is None or not data or not data[0]:
            return plan
        context = MutationContext(self.target, self.dictionary, Random(data[:HEADER]))
        return mutate(plan, context, WITH_DICTIONARY, 1 + data[0] % 3)

    def _count_coverage(self, outcome: Outcome) -> None:
        """Puts the kernels' counters into the buffer that libFuzzer reads."""
        from fuzz.backends import cpu

        if isinstance(outcome, Returned):
            self.dictionary.add(self.backend.collect_feedback(outcome)[1])
            for call in outcome.calls:
                for number in features(call.counted, cpu.counters.sites, self._numbers):
                    self.buffer[number % COUNTERS] = 1


def options(config: AtherisConfig) -> list[str]:
    """libFuzzer's options: it never ends by itself, writes nothing but its inputs, and leaves signals alone."""
    signals = ("segv", "bus", "abrt", "ill", "fpe", "int", "term", "xfsz", "usr1", "usr2")
    quiet = [f"-handle_{name}=0" for name in signals]
    limits = [f"-timeout={TIMEOUT}", *(f"-{name}=0" for name in ("rss_limit_mb", "malloc_limit_mb", "detect_leaks"))]
    limits += ["-reload=0", "-verbosity=0", f"-exact_artifact_path={os.devnull}"]
    size = [f"-max_len={HEADER + BYTES}", "-len_control=0", f"-seed={config.seed + 1}"]
    return [*quiet, *limits, *size, str(config.folder)]


def instrument(launcher: Launcher) -> Any:
    """Makes the launcher's Python count what it covers, and returns atheris; kernels count on their own."""
    import atheris

    for function in find_functions(launcher):
        if not hasattr(function.__globals__.get(function.__name__), "fn"):
            atheris.instrument_func(function)
    return atheris


def register(buffer: Any) -> Any:
    """Registers the buffer's counters with libFuzzer, and a table that gives each an address. Keep the table alive."""
    core = ctypes.CDLL(import_module("atheris.core_with_libfuzzer").__file__)
    start, count = ctypes.addressof(buffer), len(buffer)
    table = (ctypes.c_size_t * (2 * count))(*(value for index in range(count) for value in (start + index, 0)))
    core.__sanitizer_cov_8bit_counters_init(ctypes.c_void_p(start), ctypes.c_void_p(start + count))
    first = ctypes.addressof(table)
    core.__sanitizer_cov_pcs_init(ctypes.c_void_p(first), ctypes.c_void_p(first + ctypes.sizeof(table)))
    return table
