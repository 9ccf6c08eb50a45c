"""The `cpu` backend: Triton kernels compiled for the CPU by `fuzz.backends.cpu`, observed access by access."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fuzz.backends.base import Session
from fuzz.backends.cpu.runtime.counters import features
from fuzz.model.outcome import Access, Returned

if TYPE_CHECKING:
    from fuzz.backends.cpu import Violation


class CpuBackend:
    """Kernels compiled for the CPU. `counting` says whether what they do is counted."""

    name = "cpu"
    device = "cpu"

    def __init__(self) -> None:
        self.counting = False
        self._numbers: list[int] = []
        self._features: set[int] = set()
        self._constants = 0

    def unavailable_reason(self) -> str:
        try:
            from fuzz.backends import cpu

            cpu.compiler()
        except ImportError as error:
            return f"backend cpu needs triton and torch: {error}"
        except RuntimeError as error:
            return str(error)
        return ""

    def prepare(self, counters: bool = False) -> None:
        from fuzz.backends import cpu

        self.counting = counters
        cpu.activate()

    def collect_feedback(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        from fuzz.backends import cpu

        did = (features(call.counted, cpu.counters.sites, self._numbers) for call in outcome.calls if call.counted)
        fresh = set().union(*did) - self._features
        self._features |= fresh
        compared = tuple(cpu.constants.numbers[self._constants :])
        self._constants += len(compared)
        return tuple(sorted(fresh)), compared

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from fuzz.backends import cpu

        memory = cpu.Memory(filled=True)
        watched = cpu.observe(order, unwritten=memory, conflicts=True, overflow=True, counters=self.counting)
        with cpu.active(), watched as log:
            accesses = lambda: [_access(seen) for seen in log.violations]  # noqa: E731
            cpu.counters.clear()
            kernels = lambda: list(log.launches)  # noqa: E731
            yield Session(
                accesses, kernels, memory.after, log.launched, memory.allocations, read_counters=self._counted
            )

    def _counted(self) -> bytes:
        from fuzz.backends import cpu

        return bytes(cpu.counters.values()) if self.counting else b""

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        from fuzz.backends import cpu

        with cpu.active():
            yield

    def synchronize(self) -> None:
        """Nothing: a launch has ended when it returns."""

    def is_fatal(self, error: BaseException) -> bool:
        return False

    def external_oom_reason(self, error: BaseException) -> str:
        return ""


def _access(seen: Violation) -> Access:
    seen = replace(seen, file=portable(seen.file))
    kind = seen.kind if seen.problem == "out-of-bounds" else seen.problem
    return Access(seen.argument, kind, str(seen), f"{seen.file}:{seen.line}")


def portable(path: str) -> str:
    """A source file's path as it is on other machines too: inside its package, or the folder that the run began in."""
    _, installed, inside = path.rpartition("site-packages/")
    if installed:
        return inside
    here = os.getcwd() + os.sep
    return path.removeprefix(here)
