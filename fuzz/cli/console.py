"""Writes what the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console

from fuzz.cli.supervisor import note_end
from fuzz.errors import FuzzError, UsageError, os_errors_as
from fuzz.escaping import printable_lines
from fuzz.worker.system import kill_server


class TextConsole(Console):
    """Prints texts without markup, and escapes what a terminal would obey; a terminal that is gone ends nothing."""

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError):
            super().print(*(printable_lines(one) if isinstance(one, str) else one for one in objects), **options)

    def on_broken_pipe(self) -> None:
        """Prints nothing more; rich would end the process."""
        self.quiet = True


errors = TextConsole(stderr=True, soft_wrap=True, markup=False, highlight=False, emoji=False)


class StandardOutput(io.FileIO):
    """Standard output, where a write that fails, as on a full disk, is a UsageError."""

    def __init__(self) -> None:
        super().__init__(1, "w", closefd=False)

    def write(self, data: Any, /) -> int:
        with os_errors_as(UsageError, "cannot write standard output"):
            return super().write(data)


def set_up_streams() -> None:
    """Escapes what the locale cannot encode; opens standard streams that are closed, as files would take their place.

    Results that are written to a closed standard output fail, and messages to a closed standard error are lost.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is the one that is closed.
            os.set_inheritable(os.open(os.devnull, flags), True)
    output: Any = sys.stdout
    encoding, by_line = (output.encoding, output.line_buffering) if output is not None else ("utf-8", False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(StandardOutput()), encoding, errors="backslashreplace", line_buffering=by_line
    )
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    elif sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def complain(text: str) -> None:
    """One line on standard error, where somebody reads it."""
    with suppress(OSError):
        print(printable_lines(f"fuzz: {text}"), file=sys.stderr, flush=True)


def put(text: str) -> None:
    """A result for people on standard output; what a terminal would obey is escaped."""
    print(printable_lines(text))


def put_program(text: str) -> None:
    """A program on standard output, in UTF-8 whatever the locale is: so Python reads it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    print(text)


def put_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(value, default=str, allow_nan=False))


def end_process(code: int) -> NoReturn:
    """Ends this process and the server of its workers at once.

    Python would take all modules apart first, torch among them, in both, which takes seconds on a busy machine.
    """
    note_end(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, FuzzError):
            stream.flush()
    kill_server()
    os._exit(code)
