"""Writes what the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console

from fuzz.text import printable_lines
from fuzz.worker.system import kill_server


class TextConsole(Console):
    """Prints texts without markup, and escapes what a terminal would obey; a terminal that is gone ends nothing."""

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError):
            super().print(*(printable_lines(one) if isinstance(one, str) else one for one in objects), **options)


errors = TextConsole(stderr=True, soft_wrap=True, markup=False, highlight=False, emoji=False)


def complain(text: str) -> None:
    """One line on standard error."""
    print(printable_lines(f"fuzz: {text}"), file=sys.stderr)


def put(text: str) -> None:
    """A result for people on standard output; what a terminal would obey is escaped."""
    print(printable_lines(text))


def put_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(value, default=str, allow_nan=False))


def end_process(code: int) -> NoReturn:
    """Ends this process and the server of its workers at once.

    Python would take all modules apart first, torch among them, in both, which takes seconds on a busy machine.
    """
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    kill_server()
    os._exit(code)
