"""What the workers of test_target_server.py run: targets to load, and requests."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuzz.errors import UsageError
from fuzz.worker.system import children

MIB = 1 << 20
PR_SET_NAME = 15
LOADED: list[int] = []
"""The processes that have loaded, up to this one: its own number and those of the processes that it was forked from."""
KEPT: list[object] = []


def make_handler(name: str) -> Callable[[Any], object]:
    """Makes the handler, which needs what `load` loads."""
    if not LOADED:
        load(name)

    def handle(request: Any) -> object:
        action, argument = request if isinstance(request, tuple) else (request, None)
        return ACTIONS[action](argument)

    return handle


def load(name: str) -> None:
    LOADS[name]()
    LOADED.append(os.getpid())


def start_thread() -> None:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def start_allocators_thread() -> None:
    """What jemalloc starts, which pyarrow brings along."""

    def wait() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"jemalloc_bg_thd")
        named.set()
        time.sleep(1000)

    named = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    named.wait()


def start_process() -> None:
    if os.fork() == 0:
        time.sleep(1000)


def daemonise() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()


def fill_memory() -> None:
    while True:
        KEPT.append(b"x" * 16 * MIB)


def write_into_sockets() -> None:
    from benchmarks.reliability.hostile import sockets

    for each in sockets():
        os.write(each, b"\0\0\0\5hello")


def change_imports() -> None:
    """What a target's file may do at its import, and every worker then has."""
    sys.path.insert(0, "/of/the/target")
    sys.argv.append("of the target")
    torch.manual_seed(7)
    np.random.seed(7)
    os.environ["OF_THE_TARGET"] = "1"


def stop_parent() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)


def refuse() -> None:
    raise UsageError("the target is wrong")


LOADS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "imports": change_imports,
    "stops parent": stop_parent,
    "threads": start_thread,
    "allocator": start_allocators_thread,
    "process": start_process,
    "daemon": daemonise,
    "file": lambda: KEPT.append(open(__file__)),
    "memory": lambda: KEPT.append(mmap.mmap(-1, 4096)),
    "seed": lambda: random.seed(7),
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 1000),
    "folder": lambda: os.chdir("/"),
    "signal": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_CPU, (10_000, 10_000)),
    "forks": lambda: os.register_at_fork(after_in_child=lambda: os._exit(3)),
    "refuses": refuse,
    "leaves": lambda: os._exit(7),
    "exits": lambda: sys.exit(7),
    "hangs": lambda: time.sleep(1000),
    "fills": fill_memory,
    "closes": lambda: os.closerange(3, 4096),
    "writes": write_into_sockets,
    "kills parent": lambda: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(1000)),
}


def describe(_: object) -> dict[str, object]:
    """What a case could tell of its process."""
    handlers = tuple(signal.getsignal(number) for number in signal.Signals if number not in (9, 19))
    return {
        "path": sys.path,
        "arguments": sys.argv,
        "variables": dict(os.environ),
        "folder": os.getcwd(),
        "generators": (torch.get_rng_state().tolist(), repr(np.random.get_state())),
        "threads": (threading.active_count(), len(os.listdir("/proc/self/task")), torch.get_num_threads()),
        "files": len(os.listdir("/proc/self/fd")),
        "handlers": repr(handlers),
        "session": os.getsid(0) == os.getpid(),
        "processes": children(),
    }


def parents(_: object) -> list[int]:
    """The process's ancestors, its parent first."""
    found, pid = list[int](), os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


ACTIONS: dict[str, Callable[[Any], object]] = {
    "pid": lambda _: os.getpid(),
    "loaded": lambda _: LOADED,
    "describe": describe,
    "parents": parents,
    "random": lambda _: random.random(),
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "stop": lambda pid: os.kill(pid, signal.SIGSTOP),
    "leave": lambda _: os._exit(3),
}
