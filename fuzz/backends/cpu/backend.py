"""Implements the `cpu` backend: Triton kernels are compiled for the CPU, and every access is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fuzz.backends.base import Backend, CountedOutcome, Session, portable_path
from fuzz.backends.cpu.runtime.counters import features
from fuzz.model.outcome import Access, Returned

if TYPE_CHECKING:
    from fuzz.backends.cpu import Violation


class CpuBackend(Backend):
    """Runs kernels compiled for the CPU. `counting` says whether what they do is counted."""

    name = "cpu"
    forks_loaded_processes = True
    permutes_programs = True
    permutes_sums = True
    checks_accesses = True
    # A library that asks for GPUs while it is imported finds none, as on a machine without one: CUDA would start
    # threads and open files, and no worker could be forked from a process that has loaded the target.
    load_environment = MappingProxyType({"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"})

    def __init__(self) -> None:
        self.counting = False
        self.races = False
        # What earlier calls of `collect_feedback` have returned.
        self._feature_numbers: list[int] = []
        self._features: set[int] = set()
        self._constants = 0

    def unavailable_reason(self) -> str:
        try:
            from fuzz.backends.cpu.compilers.compiler import compiler
            from fuzz.backends.cpu.compilers.tiny_compiler import folder

            if folder() is None:
                compiler()
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

        sites, counted = cpu.counters.sites, [call.counted for call in outcome.calls if call.counted]
        new = set().union(*(features(values, sites, self._feature_numbers) for values in counted)) - self._features
        self._features |= new
        constants = tuple(cpu.constants.numbers[self._constants :])
        self._constants += len(constants)
        return tuple(sorted(new)), constants

    def counted_outcomes(self) -> Sequence[CountedOutcome]:
        from fuzz.backends import cpu

        return cpu.counters.sites

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from fuzz.backends import cpu

        memory = cpu.ShadowMemory(filled=True)
        instruments = dict(conflicts=True, races=self.races, overflow=True, counters=self.counting)
        with cpu.active(), cpu.observe(order, unwritten=memory, **instruments) as log:
            cpu.counters.clear()
            yield Session(
                accesses=lambda: [_access(violation) for violation in log.violations],
                kernels=lambda: list(log.launches),
                on_operation=memory.after_operation,
                launches=log.recorded_launches,
                shadowed=memory.allocations,
                read_counters=self._read_counters,
            )

    @contextmanager
    def observe_races(self) -> Iterator[None]:
        self.races = True
        try:
            yield
        finally:
            self.races = False

    def _read_counters(self) -> bytes:
        from fuzz.backends import cpu

        return bytes(cpu.counters.values()) if self.counting else b""

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        from fuzz.backends import cpu

        with cpu.active():
            yield


def _access(violation: Violation) -> Access:
    violation = replace(violation, file=portable_path(violation.file))
    kind = violation.kind if violation.problem == "out-of-bounds" else violation.problem
    return Access(violation.argument, kind, str(violation), f"{violation.file}:{violation.line}")
