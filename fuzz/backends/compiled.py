"""The `cpu` backend: Triton kernels compiled for the CPU by `fuzz.backends.cpu`, observed access by access."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fuzz.backends.base import Session
from fuzz.outcome import Access

if TYPE_CHECKING:
    from fuzz.backends.cpu import Violation


class Compiled:
    name = "cpu"
    device = "cpu"

    def unusable(self) -> str:
        try:
            from fuzz.backends import cpu

            cpu.compiler()
        except ImportError as error:
            return f"backend cpu needs triton and torch: {error}"
        except RuntimeError as error:
            return str(error)
        return ""

    def prepare(self) -> None:
        from fuzz.backends import cpu

        cpu.activate()

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from fuzz.backends import cpu

        memory = cpu.Memory(filled=True)
        with cpu.active(), cpu.observe(order=order, unwritten=memory, conflicts=True, overflow=True) as log:
            accesses = lambda: [_access(seen) for seen in log.violations]  # noqa: E731
            yield Session(accesses, lambda: list(log.launches), memory.after, log.launched, memory.allocations)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        from fuzz.backends import cpu

        with cpu.active():
            yield

    def finish(self) -> None:
        """Nothing: a launch has ended when it returns."""

    def fatal(self, error: BaseException) -> bool:
        return False


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
