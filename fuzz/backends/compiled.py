"""The `cpu` backend: Triton kernels compiled for the CPU by `fuzz.backends.cpu`, observed access by access."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from fuzz.backends import cpu

        with cpu.active(), cpu.observe(order=order) as log:
            yield Session(lambda: [_access(seen) for seen in log.violations], lambda: list(log.launches))

    def finish(self) -> None:
        """Nothing: a launch has ended when it returns."""

    def fatal(self, error: BaseException) -> bool:
        return False


def _access(seen: Violation) -> Access:
    return Access(seen.argument, seen.kind, str(seen), f"{seen.file}:{seen.line}")
