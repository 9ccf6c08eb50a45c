"""Runs a kernel's machine code, of which there are two tiers with the same bits.

The quick tier is compiled in this process, in milliseconds. A kernel in which that code has run for long is hot: the C
compiler makes the optimised tier of it in the background, which is taken as soon as it is there, between two programs
of a long launch too, and at once in later processes. Which tier runs changes no result and no report, only how long a
launch takes.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar

from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import BackgroundBuild, build_object, load_shared, object_path
from fuzz.backends.cpu.compilers.quick_objects import load_quick
from fuzz.backends.cpu.errors import CompilerFailed, CompilerTimeout, NoCompiler
from fuzz.backends.triton_host.knobs import knobs
from fuzz.worker.child.serve import heartbeat
from fuzz.worker.profile import measured

HOT_SECONDS_PER_CHARACTER = 4e-6
"""Seconds that a hot kernel's quick code has run, by characters of C: about a third of what the C compiler takes."""
SLOW_SECONDS = 1.0
"""Seconds of one launch in quick code after which the next one waits for the optimised code."""
POLL_SECONDS = 0.02
"""Seconds of quick code between two looks at whether the optimised code is there."""
FIRST_PART = 16
"""Programs, or launches, of quick code before the first look at how long they take."""
GRID, SLOT = Struct("3q"), 8
"""The head of packed arguments, and the bytes of each of them."""


@measured("compile")
def load_kernel(name: str, c: KernelText) -> Any:
    """The function that runs a launch of a kernel: packed arguments to the address of a report, or None.

    It has `launch_many`, `release`, which frees a report, and `begin`, `until` and `end` for a launch in parts. Raises
    NoCompiler where there is none at all, CompilerFailed or CompilerTimeout.
    """
    if knobs.compiler == "optimising":
        return load_built(c, name)
    # A damaged object counts as none.
    with suppress(NoCompiler, OSError):
        if knobs.compiler == "auto" and (path := object_path(c)).exists():
            return load_object(path)
    try:
        quick = load_quick(c, name)
    except (NoCompiler, CompilerFailed):
        if knobs.compiler == "quick":
            raise
        return load_built(c, name)
    function = bind(lambda entry: ctypes.CFUNCTYPE(None)(quick.address(entry)))
    # The code of both ends with the last reference to it, and a report may be released after the function is replaced.
    function.machine_code = function.release.machine_code = quick
    return function if knobs.compiler == "quick" else TieredFunction(c, function)


def load_built(c: KernelText, name: str) -> Any:
    """The function in a kernel's shared object, which is made where none is kept or a damaged one."""
    try:
        return load_object(build_object(c, name))
    except OSError:
        return load_object(build_object(c, name))


def load_object(path: Path) -> Any:
    library = load_shared(path)
    return bind(lambda entry: getattr(library, entry))


def bind(entry: Callable[[str], Any]) -> Any:
    """`launch` with its types, and with the other entries as attributes."""
    launch, launch_many, release = entry("launch"), entry("launch_many"), entry("release")
    launch.restype, launch.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    release.restype, release.argtypes = None, [ctypes.c_void_p]
    launch_many.restype = None
    launch_many.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    launch.release, launch.launch_many = release, launch_many
    launch.begin, launch.until, launch.end = entry("launch_begin"), entry("launch_until"), entry("launch_end")
    launch.begin.restype, launch.begin.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    launch.until.restype, launch.until.argtypes = None, [ctypes.c_void_p, ctypes.c_int64]
    launch.end.restype, launch.end.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return launch


class TieredFunction:
    """A kernel's function in quick code, until the optimised code is there."""

    _build: ClassVar[BackgroundBuild | None] = None
    """The one build of this process that is going on."""

    def __init__(self, c: KernelText, quick: Any) -> None:
        self._c, self._function, self.release = c, quick, quick.release
        self.is_quick, self._is_slow = True, False
        # The process that had the optimised code made. One that it forks has it made again.
        self._built_by: int | None = None
        # Seconds of quick code left until the next look at the optimised code.
        self._left = HOT_SECONDS_PER_CHARACTER * c.characters

    def __call__(self, packed: bytes) -> int | None:
        if self.is_quick:
            self._choose_code()
        if not self.is_quick:
            report: int | None = self._function(packed)
            return report
        x, y, z = GRID.unpack_from(packed)
        if x * y * z > FIRST_PART and (launch := self._function.begin(packed)) is not None:
            return self._launch_in_parts(launch, x * y * z)
        start = time.perf_counter()
        report = self._function(packed)
        seconds = time.perf_counter() - start
        self._left, self._is_slow = self._left - seconds, seconds > SLOW_SECONDS
        return report

    def _launch_in_parts(self, launch: int, programs: int) -> int | None:
        """Ends a launch that has begun, in optimised code where that comes meanwhile."""
        try:
            self._run_parts(programs, 1, lambda begin, end: self._function.until(launch, end))
        except BaseException:
            self.release(self._function.end(launch))
            raise
        report: int | None = self._function.end(launch)
        return report

    def launch_many(self, packed: int, slots: int, count: int, reported: int) -> None:
        """Launches with `count` rows of packed arguments, and marks in `reported` those that had a report."""
        if self.is_quick:
            self._choose_code()

        def run(begin: int, end: int) -> None:
            self._function.launch_many(packed + begin * slots * SLOT, slots, end - begin, reported + begin)

        self._run_parts(count, count, run)

    def _run_parts(self, count: int, launches: int, run: Callable[[int, int], None]) -> None:
        """Runs what `launches` consist of, `count` programs or launches, from one number to another.

        Parts of quick code are short: the optimised code may be there after each of them.
        """
        begin, size, spent = 0, FIRST_PART, 0.0
        while begin < count:
            end = min(begin + size, count) if self.is_quick else count
            start = time.perf_counter()
            run(begin, end)
            if self.is_quick:
                seconds = time.perf_counter() - start
                self._left, spent = self._left - seconds, spent + seconds
                size = int((end - begin) * POLL_SECONDS / max(seconds, 1e-6)) + 1
                if end < count:
                    self._choose_code()
            begin = end
        self._is_slow = spent > SLOW_SECONDS * launches

    def _choose_code(self) -> None:
        """Before a launch, not after one: a kernel that is never launched again needs no better code."""
        if self._is_slow:
            self._wait_for_optimised_code()
        elif self._left < 0:
            self._left = POLL_SECONDS
            self._take_optimised_code()

    def _wait_for_optimised_code(self) -> None:
        """The watchdog counts none of this time."""
        self._is_slow = False
        heartbeat()
        try:
            self._function, self.is_quick = load_built(self._c, "in the background"), False
        except (NoCompiler, CompilerFailed, CompilerTimeout, OSError):
            self._left = math.inf

    def _take_optimised_code(self) -> None:
        """Takes it where it is there, else has it made, once, as soon as this process has no other kernel's made."""
        if TieredFunction._build is not None and TieredFunction._build.has_ended():
            TieredFunction._build = None
        try:
            path = object_path(self._c)
            if path.exists():
                # A damaged object is made again after the next look.
                with suppress(OSError):
                    self._function, self.is_quick = load_object(path), False
            elif TieredFunction._build is None and self._built_by == os.getpid():
                self._left = math.inf
            elif TieredFunction._build is None:
                TieredFunction._build = BackgroundBuild.start(self._c)
                self._built_by = None if TieredFunction._build is None else os.getpid()
        except (NoCompiler, CompilerFailed, OSError):
            self._left = math.inf
