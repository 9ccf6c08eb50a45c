"""Runs ``fuzz campaign`` with writes that take long: ``slow_writes.py campaign MARKS CONFIG``.

An entry and a line of a journal stop half way, an entry again before it gets its name, and a transaction of the store
before it is committed. While one stops, a file in the folder MARKS tells what is being written and by which process.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from fuzz import cli
from fuzz.campaign.hosts import host_process, hosts

SECONDS = 0.4
"""Seconds that a write stops for."""
SHARES = {"entry": 1.0, "name": 1.0, "finding": 1.0, "journal": 0.03, "row": 0.05}
"""How often it does: there are many lines of journals, and many rows that are no findings."""


class SlowFile:
    """A file that is written in two halves."""

    def __init__(self, file: Any, kind: str, marks: Path) -> None:
        self.file, self.kind, self.marks = file, kind, marks

    def write(self, data: Any) -> int:
        half = len(data) // 2
        self.file.write(data[:half])
        self.file.flush()
        stop(self.kind, self.marks)
        self.file.write(data[half:])
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> SlowFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def stop(kind: str, marks: Path) -> None:
    """Waits within a write, sometimes, with a mark that tells so."""
    if random.random() < SHARES[kind]:
        with marked(kind, marks):
            time.sleep(SECONDS)


@contextmanager
def marked(kind: str, marks: Path) -> Iterator[None]:
    mark = marks / f"{os.getpid()}-{kind}"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def slow_down(marks: Path) -> None:
    """Slows the writes of this process down."""
    open_file, replace_file = Path.open, os.replace

    def open_slowly(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = open_file(path, mode, *arguments, **options)
        kind = {".tmp": "entry", ".journal": "journal"}.get(path.suffix)
        return SlowFile(file, kind, marks) if kind and mode != "r" else file

    def replace_slowly(source: Any, place: Any) -> None:
        if str(place).endswith(".yaml"):
            stop("name", marks)
        replace_file(source, place)

    def stop_transaction(_connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            stop("finding" if "INTO findings" in statement else "row", marks)

    Path.open, os.replace = open_slowly, replace_slowly  # type: ignore[method-assign, assignment]
    event.listen(Engine, "after_cursor_execute", stop_transaction)


def main() -> None:
    kind, marks, *arguments = sys.argv[1:]
    slow_down(Path(marks))
    if kind == "host":
        sys.argv[1:] = arguments
        host_process.main()
    hosts.HOST_COMMAND = (sys.executable, "-P", __file__, "host", marks)
    cli.main(["campaign", *arguments, "--resume"])


if __name__ == "__main__":
    main()
