"""Keeps the inputs on which a surface fails, one for each place in the code."""

from __future__ import annotations

import hashlib
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

MAX_SECONDS = 60
"""Seconds after which an input counts as one that does not end; what is read in time takes milliseconds."""


class Hang(Exception):
    """An input takes longer than it may."""


@dataclass
class Crashes:
    """The smallest input of each defect, by the kind of the error and the line that raised it."""

    folder: Path
    inputs: dict[str, bytes] = field(default_factory=dict)

    def add(self, data: bytes, error: BaseException) -> str:
        """Keeps an input; returns the defect's name."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        name = f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
        if name not in self.inputs or len(data) < len(self.inputs[name]):
            self.inputs[name] = data
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
            lines = traceback.format_exception(error)
            (self.folder / f"{name}.txt").write_text("".join(lines), errors="backslashreplace")
        return name


@contextmanager
def limit_time(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Raises Hang in this thread where what is inside takes longer."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Hang(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def save_input(folder: Path, data: bytes) -> None:
    """Writes an input under a name that its bytes give."""
    (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


Check = Callable[[bytes], None]
