"""Has threads run inside of what holds for the thread that starts them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from fuzz.backends.triton_host.patching import Patch

real_start = threading.Thread.start
INHERITED: list[Callable[[], AbstractContextManager[Any] | None]] = []
"""Called where a thread starts another: each returns the context that the other is to run in, or None."""


def start(thread: threading.Thread) -> None:
    """`Thread.start`."""
    contexts = [context for inherit in INHERITED if (context := inherit()) is not None]
    if contexts:
        run = thread.run

        def run_inside() -> None:
            with ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context)
                run()

        thread.run = run_inside  # type: ignore[method-assign]
    real_start(thread)


PATCHES = [Patch(threading.Thread, "start", start)]
