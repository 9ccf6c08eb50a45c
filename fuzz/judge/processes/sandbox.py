"""Shuts a solution's process off from the network, limits its files, and records what no honest solution does."""

from __future__ import annotations

import ctypes
import inspect
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.judge.processes.attributes import AttributeSnapshot

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
MOST_BYTES, MOST_FILES = 1 << 31, 4096
"""Bytes of a file that is written, and files that are open at once."""
LOOKING = {"sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers", "gc.get_referents"}
HELPERS = {inspect.__file__, traceback.__file__}
"""Files of the library that look at frames for their callers."""


def leave_network() -> str:
    """Leaves the machine's network for good; why that is not possible, empty where it is."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return f"the network cannot be left here: {os.strerror(ctypes.get_errno())}"
    try:
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
    except OSError as error:
        return f"the network is left, but not all of the user's rights are kept: {error}"
    return ""


def limit_files() -> None:
    """Limits the size and the number of files of this process."""
    for kind, most in ((resource.RLIMIT_FSIZE, MOST_BYTES), (resource.RLIMIT_NOFILE, MOST_FILES)):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


class ConductRecord:
    """What a solution's own code did that no honest one does, once each. It records from its creation on."""

    def __init__(self, files: Iterable[Path], secret: Iterable[Path]) -> None:
        self.files = {str(path.resolve()) for path in files}
        self.secret = {str(path.resolve()) for path in secret}
        self.reasons: dict[str, None] = {}
        self._snapshot = AttributeSnapshot()
        self._inside = False
        sys.addaudithook(self._record)

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Is called by Python for every event of an audit; what is raised here would reach the solution."""
        if self._inside or event != "open" and event not in LOOKING and event != "socket.connect":
            return
        self._inside = True
        try:
            if event == "open":
                self._record_file(arguments[0])
            elif self._is_solution(sys._getframe(1)):
                self.reasons[f"calls {event}" if event in LOOKING else "opens a connection"] = None
        finally:
            self._inside = False

    def _record_file(self, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            other = name.startswith("/proc/") and name.endswith(("/mem", "/maps", "/environ"))
            if (other or name in self.secret) and self._on_stack():
                self.reasons[f"reads {name if other else os.path.basename(name)}"] = None

    def _is_solution(self, frame: FrameType | None) -> bool:
        """Whether a frame is of the solution, or of the library on its behalf."""
        while frame is not None and frame.f_code.co_filename in HELPERS:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename in self.files

    def _on_stack(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in self.files:
            frame = frame.f_back
        return frame is not None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Records what the code of a block replaces. A backend that replaces functions itself does so around it."""
        before = AttributeSnapshot()
        try:
            yield
        finally:
            self._record_replaced(before)

    def _record_replaced(self, before: AttributeSnapshot) -> None:
        self.reasons |= dict.fromkeys(f"replaces {name}" for name in before.find_replaced())

    def collect(self) -> tuple[str, ...]:
        """The reasons so far, with functions that are replaced by now."""
        self._record_replaced(self._snapshot)
        return tuple(self.reasons)
