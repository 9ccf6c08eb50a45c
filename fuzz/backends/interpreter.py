"""The `interpreter` backend: Triton's own interpreter, for cross-checks. It is slow and checks nothing.

Triton decides when it is imported whether kernels are interpreted, so it needs a process of its own, started with
ENVIRONMENT.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fuzz.backends.base import Session
from fuzz.model.outcome import Returned

ENVIRONMENT = {"TRITON_INTERPRET": "1"}


class Interpreter:
    """Runs kernels by Triton's interpreter. It observes nothing."""

    name = "interpreter"
    device = "cpu"

    def unavailable_reason(self) -> str:
        if os.environ.get("TRITON_INTERPRET") != "1":
            return "backend interpreter is a witness in a process of its own; choose cpu or cuda"
        return ""

    def prepare(self, counters: bool = False) -> None:
        """Nothing: sessions need nothing."""

    def collect_feedback(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return (), ()

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        yield Session()

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None:
        """Nothing: a launch has ended when it returns."""

    def is_fatal(self, error: BaseException) -> bool:
        return False

    def external_oom_reason(self, error: BaseException) -> str:
        return ""
