"""The `interpreter` backend: Triton's own interpreter, as a second witness. It is slow and checks nothing.

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
    name = "interpreter"
    device = "cpu"

    def unusable(self) -> str:
        if os.environ.get("TRITON_INTERPRET") != "1":
            return "backend interpreter is a witness in a process of its own; choose cpu or cuda"
        return ""

    def prepare(self, counters: bool = False) -> None:
        """Nothing: sessions need nothing."""

    def told(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return (), ()

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        yield Session()

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        yield

    def finish(self) -> None:
        """Nothing: a launch has ended when it returns."""

    def fatal(self, error: BaseException) -> bool:
        return False

    def crowded(self, error: BaseException) -> str:
        return ""
