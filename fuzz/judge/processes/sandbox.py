"""Shuts a solution's process off from the network, limits its files, and records what no honest solution does."""

from __future__ import annotations

import ctypes
import inspect
import os
import resource
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import thread as futures
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import WeakSet

import torch
from torch.library import Library
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from fuzz.judge.processes.attributes import AttributeSnapshot, CodeSnapshot

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS = 0x10000000, 0x40000000, 0x00020000
MS_BIND = 0x1000
MOST_BYTES, MOST_FILES = 1 << 31, 4096
"""Bytes of a file that is written, and files that are open at once."""
LOOKING = {
    "sys._getframe", "sys._current_frames", "sys.setprofile", "sys.settrace",
    "gc.get_objects", "gc.get_referrers", "gc.get_referents",
}  # fmt: skip
"""Events of audits: frames and the collector's objects are looked at."""
READ, FRAMES = "object.__getattr__", {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
"""The event of an audit that an attribute is read, and those by which a frame is reached."""
HELPERS, REGISTERING = {inspect.__file__, traceback.__file__}, {torch.library.__file__}
"""Files of libraries that look at frames for their callers, and that register operations for them."""
THREADING = {threading.__file__, futures.__file__}
"""Files of libraries that start threads for their callers."""
ENDING_SECONDS = 0.01
"""Seconds that a thread has to end, or to wait for work, once its result is there."""
MAKING = {"exec", "function.__new__"}
"""Events of audits: code is executed, or made a function, wherever its text comes from."""
EVENTS = {"open", "socket.connect", READ} | LOOKING | MAKING
HOOKS = [value for name, value in vars(torch.nn.modules.module).items() if name.endswith("_hooks")]
"""What is called for every module of a process."""


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


def hide_files(files: Iterable[Path], folder: Path) -> str:
    """Leaves files empty for this process, however it reads them, and for what it starts; why that is not possible.

    The network has been left before. An empty file in the folder stands in their place.
    """
    present = [path.resolve() for path in files if path.is_file()]
    libc = ctypes.CDLL(None, use_errno=True)
    empty = folder / "empty"
    empty.touch()
    failed = bool(present) and libc.unshare(CLONE_NEWNS)
    for path in present if not failed else ():
        failed = failed or libc.mount(os.fsencode(empty), os.fsencode(path), None, MS_BIND, None)
    return f"files cannot be hidden here: {os.strerror(ctypes.get_errno())}" if failed else ""


def limit_files() -> None:
    """Limits the size and the number of files of this process."""
    for kind, most in ((resource.RLIMIT_FSIZE, MOST_BYTES), (resource.RLIMIT_NOFILE, MOST_FILES)):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


class ConductRecord:
    """What a solution's own code did that no honest one does, once each. It records from its creation on.

    It may not read the `secret` files, and not write what there is in the `folder` of the problem. Its code is that of
    the `files`, and of all below the folder of its `sources`.
    """

    def __init__(
        self, files: Iterable[Path], secret: Iterable[Path], folder: Path | None = None, sources: Path | None = None
    ) -> None:
        self.sources = f"{sources.resolve()}{os.sep}" if sources is not None else ""
        self.files = {str(path.resolve()) for path in files}
        self.secret = {str(path.resolve()) for path in secret}
        self.foreign = {str(path.resolve()) for path in folder.iterdir()} if folder is not None else set()
        self.reasons: dict[str, None] = {}
        self._texts: dict[int, CodeType] = {}
        """Code that the solution has made of texts, which may bear the name of any file, by its address."""
        self._snapshot, self._codes = AttributeSnapshot(), CodeSnapshot()
        self._inside = self._begun = False
        self._started: WeakSet[threading.Thread] = WeakSet()
        """Threads that the solution itself has started."""
        sys.addaudithook(self._record)
        self._watch_registrations()
        self._watch_threads()

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Is called by Python for every event of an audit; what is raised here would reach the solution."""
        if self._inside or event not in EVENTS:
            return
        self._inside = True
        try:
            if event == "open":
                self._record_file(*arguments)
            elif event in MAKING:
                if self._is_solution(sys._getframe(1)):
                    self._texts |= {id(code): code for code in nested_code(arguments[0])}
            elif event == READ:
                # What prints an exception reads its frames as well.
                if arguments[1] in FRAMES and self._is_solution(sys._getframe(1), frozenset()):
                    self.reasons[f"reads {arguments[1]}"] = None
            elif self._is_solution(sys._getframe(1)):
                self.reasons[f"calls {event}" if event in LOOKING else "opens a connection"] = None
        finally:
            self._inside = False

    def _record_file(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            other = name.startswith("/proc/") and name.endswith(("/mem", "/maps", "/environ"))
            if (other or name in self.secret) and self._on_stack():
                self.reasons[f"reads {name if other else os.path.basename(name)}"] = None
            elif flags & (os.O_WRONLY | os.O_RDWR) and name in self.foreign and self._on_stack():
                self.reasons[f"writes {os.path.basename(name)}"] = None

    def _is_solution(self, frame: FrameType | None, helpers: AbstractSet[str] = HELPERS) -> bool:
        """Whether a frame is of the solution, or of files that act for it, or of text that it executes."""
        while frame is not None and (frame.f_code.co_filename in helpers or is_text(frame.f_code)):
            frame = frame.f_back
        return frame is not None and self._holds(frame.f_code)

    def _holds(self, code: CodeType) -> bool:
        """Whether code is in a file of the solution, or of a text that it has executed."""
        name = code.co_filename
        return id(code) in self._texts or name in self.files or bool(self.sources) and name.startswith(self.sources)

    def _on_stack(self, frame: FrameType | None = None) -> bool:
        """Whether code of the solution is among a frame and its callers; the frame is the caller's without another."""
        frame = frame or sys._getframe(1)
        while frame is not None and not self._holds(frame.f_code):
            frame = frame.f_back
        return frame is not None

    def _watch_registrations(self) -> None:
        """Records from now on what the solution registers for PyTorch's own operations."""
        register: Any = Library.impl
        record = self

        def impl(library: Library, name: Any, *args: Any, **kwargs: Any) -> Any:
            if library.ns == "aten" and record._is_solution(sys._getframe(1), REGISTERING):
                record.reasons[f"replaces aten::{name}"] = None
            return register(library, name, *args, **kwargs)

        Library.impl = impl  # type: ignore[method-assign, assignment]

    def _watch_threads(self) -> None:
        """Notes from now on which threads the solution starts; none of Python's audits tells."""
        start, record = threading.Thread.start, self

        def note_and_start(thread: threading.Thread) -> None:
            if record._is_solution(sys._getframe(1), THREADING):
                record._started.add(thread)
            start(thread)

        threading.Thread.start = note_and_start  # type: ignore[method-assign, assignment]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Records what the code of a block replaces, and what of it goes on after it.

        A backend that replaces functions itself does so around it.
        """
        if not self._begun:
            self._codes.look()
        self._begun = True
        before, hooks, threads = AttributeSnapshot(), sum(map(len, HOOKS)), set(sys._current_frames())
        modes = active_modes()
        try:
            yield
        finally:
            self._record_replaced(before)
            if any(self._is_own(type(mode)) for mode in active_modes()[len(modes) :]):
                self.reasons["leaves a mode of PyTorch active"] = None
            if sum(map(len, HOOKS)) > hooks:
                self.reasons["registers a hook for every module"] = None
            if self._leaves_thread(threads):
                self.reasons["leaves a thread running"] = None

    def _leaves_thread(self, earlier: AbstractSet[int]) -> bool:
        """Whether a thread of the solution runs that is none of the earlier ones, which are given by their numbers.

        It is one that executes the solution's code, or that the solution has started; threads of libraries are none.
        """
        known = {one.ident: one for one in threading.enumerate()}
        for number, frame in sys._current_frames().items():
            if number in earlier or number == threading.get_ident():
                continue
            thread = known.get(number)
            if self._on_stack(frame) or thread is not None and self._owns(thread) and not is_done(thread):
                return True
        return False

    def _owns(self, thread: threading.Thread) -> bool:
        return thread in self._started or self._is_own(getattr(thread, "_target", None)) or self._is_own(type(thread))

    def _is_own(self, value: Any) -> bool:
        """Whether a function, or one that a class has, is defined in a file of the solution."""
        functions = vars(value).values() if isinstance(value, type) else [value]
        return any(self._holds(one.__code__) for one in functions if hasattr(one, "__code__"))

    def _record_replaced(self, before: AttributeSnapshot | CodeSnapshot) -> None:
        self.reasons |= dict.fromkeys(f"replaces {name}" for name in before.find_replaced())

    def collect(self) -> tuple[str, ...]:
        """The reasons so far, with functions that are replaced by now."""
        self._record_replaced(self._snapshot)
        self._record_replaced(self._codes)
        return tuple(self.reasons)


def nested_code(code: Any) -> Iterator[CodeType]:
    """Code, and that of the functions and classes in it."""
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from nested_code(constant)


def is_text(code: CodeType) -> bool:
    """Whether code comes from a text that was executed, and not from a file or Python itself."""
    return code.co_filename.startswith("<") and not code.co_filename.startswith("<frozen")


def is_done(thread: threading.Thread) -> bool:
    """Whether a thread has nothing more to do: it ends, or it is a timer's that is over, or of a pool without work."""
    for seconds in (0.0, ENDING_SECONDS):
        # Its class may be the solution's.
        threading.Thread.join(thread, seconds)
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is None or not threading.Thread.is_alive(thread) or frame.f_code is futures._worker.__code__:
            return True
    return isinstance(thread, threading.Timer) and thread.finished.is_set()


def active_modes() -> list[Any]:
    """The modes of PyTorch that are active, by which code changes what operations do."""
    function_modes: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [*_get_current_dispatch_mode_stack(), *function_modes]
