"""What an attack leaves: processes, torn entries, and files that only executed texts make."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.attacks.attack import FellError
from fuzz import corpus
from fuzz.errors import CorpusError

PATIENCE = 15.0
"""Seconds in which processes that are being ended may go on."""
EXECUTED = "pwned"
"""The file that hostile texts make where they are executed."""
FOUND = "found"
"""The corpus into which attacked commands write; attacks put nothing there themselves."""


def left_processes(marker: str, folder: Path) -> list[int]:
    """Processes that have the attack's variable, or work in its folder; those that wait to be collected have ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            marked = marker.encode() in (process / "environ").read_bytes()
            inside = str(folder) in os.readlink(process / "cwd")
            if (marked or inside) and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def check_processes(marker: str, folder: Path) -> None:
    """Waits until no process of the attack is left. FellError, with all of them ended, where some stay."""
    until = time.monotonic() + PATIENCE
    while (left := left_processes(marker, folder)) and time.monotonic() < until:
        time.sleep(0.1)
    if left:
        names = [command_line(pid) for pid in left]
        end_processes(marker, folder)
        raise FellError(f"left {len(left)} processes: {'; '.join(names)[:300]}")


def end_processes(marker: str, folder: Path) -> None:
    """Ends every process of the attack, and those that they start meanwhile."""
    until = time.monotonic() + PATIENCE
    while (left := left_processes(marker, folder)) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:100]
    return str(pid)


def check_files(folder: Path) -> None:
    """FellError for a torn entry, half a file or a file that hostile text has made."""
    for path in folder.rglob(EXECUTED):
        raise FellError(f"executed: {path.relative_to(folder)}")
    for place in folder.rglob(FOUND):
        for path in corpus.entry_files([place]) if place.is_dir() else ():
            try:
                corpus.read(path)
            except CorpusError as error:
                raise FellError(f"torn entry: {error}") from None
        if half := list(place.rglob(".*.tmp")):
            raise FellError(f"left half a file: {half[0].relative_to(folder)}")
