"""Restores what a kernel has changed of its process and what would reach the cases after it."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)
LIMITS = (
    resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
)  # fmt: skip


@dataclass(frozen=True)
class Changes:
    """Whether a kernel has changed the limits of its process's resources, and whether all is as it was before."""

    limits: bool = False
    restored: bool = True


UNCHANGED = Changes()


@dataclass(frozen=True)
class ProcessState:
    """A process's folder, variables, signal handlers and limits of resources."""

    folder: str
    variables: Mapping[Any, Any]
    handlers: tuple[Any, ...]
    limits: tuple[tuple[int, int], ...]

    @classmethod
    def capture(cls) -> ProcessState:
        """The state of this process."""
        return cls(_folder(), dict(_variables()), _handlers(), _limits())

    def restore(self) -> Changes:
        """Restores what is not as it was, in the main thread. A limit that was lowered for good stays lowered."""
        if _folder() != self.folder:
            with suppress(OSError):
                os.chdir(self.folder)
        if _variables() != self.variables:
            os.environ.clear()
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()})
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _handlers() != self.handlers:
            for which, handler in zip(SIGNALS, self.handlers, strict=True):
                signal.signal(which, handler)
        if (limits := _limits()) == self.limits:
            return UNCHANGED
        for number, limit in zip(LIMITS, self.limits, strict=True):
            with suppress(OSError, ValueError):
                resource.setrlimit(number, limit)
        return Changes(limits=limits != self.limits, restored=_limits() == self.limits)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _variables() -> Any:
    # What os.environ wraps, where it can be had: copying and decoding it takes as long as a whole request.
    return getattr(os.environ, "_data", os.environ)


def _handlers() -> tuple[Any, ...]:
    return tuple(map(signal.getsignal, SIGNALS))


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMITS))
