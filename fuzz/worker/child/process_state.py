"""Restores what a kernel has changed of its process and what would reach the cases after it."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)
LIMITS = (
    resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
)  # fmt: skip

MODULES = builtins, io, os, pickle, resource, select, signal, socket, struct, sys, threading, time
"""Modules whose functions a worker calls between two launches."""
OWN_MODULES = sys.stdlib_module_names | {"fuzz"}
"""The packages whose modules stay what they are. Others put new ones in the place of theirs."""


@dataclass(frozen=True)
class Changes:
    """Whether a kernel has changed the limits of its process's resources, or handlers of signals, which may have raised
    in other code; and whether all is as it was before."""

    limits: bool = False
    handlers: bool = False
    restored: bool = True


@dataclass(frozen=True)
class ProcessState:
    """A process's folder, variables, signal handlers and limits of resources, and what its interpreter's names mean."""

    folder: str
    variables: Mapping[Any, Any]
    handlers: tuple[Any, ...]
    limits: tuple[tuple[int, int], ...]
    namespaces: tuple[Mapping[str, Any], ...]

    @classmethod
    def capture(cls) -> ProcessState:
        """The state of this process."""
        return cls(_folder(), dict(_variables()), _handlers(), _limits(), tuple(_namespaces()))

    @property
    def is_interpreter_changed(self) -> bool:
        """Whether a kernel has replaced what code of this process relies on, or has that code raise by a handler of
        signals or an audit hook.

        It takes milliseconds: it is asked where that code has failed. It may fail of the changes itself.
        """
        try:
            sys.audit("fuzz.interpreter")
            return _handlers() != self.handlers or any(
                now.get(name) is not value
                for now, before in zip(_namespaces(), self.namespaces, strict=True)
                for name, value in before.items()
            )
        except Exception:
            return True

    def restore(self) -> Changes:
        """Restores what is not as it was, in the main thread. A limit that was lowered for good stays lowered."""
        if _folder() != self.folder:
            with suppress(OSError):
                os.chdir(self.folder)
        if _variables() != self.variables:
            os.environ.clear()
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()})
        signal.setitimer(signal.ITIMER_REAL, 0)
        if handlers := _handlers() != self.handlers:
            for which, handler in zip(SIGNALS, self.handlers, strict=True):
                signal.signal(which, handler)
        if (limits := _limits()) == self.limits:
            return Changes(handlers=handlers)
        for number, limit in zip(LIMITS, self.limits, strict=True):
            with suppress(OSError, ValueError):
                resource.setrlimit(number, limit)
        return Changes(limits != self.limits, handlers, restored=_limits() == self.limits)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _variables() -> Any:
    # What os.environ wraps, where it can be had: copying and decoding it takes as long as a whole request.
    return getattr(os.environ, "_data", os.environ)


def _namespaces() -> Iterator[Mapping[str, Any]]:
    """What names mean that code of a worker relies on. Each is copied first: another thread may be importing."""
    for module in MODULES:
        yield {name: value for name, value in vars(module).copy().items() if callable(value)}
    yield {name: module for name, module in sys.modules.copy().items() if name.partition(".")[0] in OWN_MODULES}
    # A process that has not imported torch runs no kernel.
    if torch := sys.modules.get("torch"):
        yield {name: value for name, value in vars(torch).copy().items() if callable(value)}
        yield {name: value for kind in reversed(torch.Tensor.__mro__) for name, value in vars(kind).copy().items()}


def _handlers() -> tuple[Any, ...]:
    return tuple(map(signal.getsignal, SIGNALS))


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMITS))
