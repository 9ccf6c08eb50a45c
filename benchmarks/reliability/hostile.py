"""Launchers that are right but for what they do to their process where they get one element.

Each is to become the one finding of its kind in `EXPECTED`, or none, and to cost nothing else.
"""

import ctypes
import os
import resource
import signal
import sys
import time

import torch

from fuzz import size, target, tensor

N = size("N", 1, 8)
DOUBLE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2), timeout=60.0)
HANGS = {**DOUBLE, "timeout": 3.0}
EXPECTED = {
    "segfaults": "died", "aborts": "died", "leaves": "died", "exits": "died", "forks_and_leaves": "died",
    "garbles": "died", "closes": "died", "kills_parent": "died", "stops_itself": "hung", "loops": "hung",
    "fills": "out-of-memory", "raises_unprintable": "raised", "raises_huge": "raised",
    "child_leaves": "", "returns_twice": "", "daemonises": "", "stops_parent": "", "prints": "", "changes_state": "",
}  # fmt: skip
"""Launcher -> symptom of its one finding; empty for none."""


def sockets():
    """The sockets that this process holds."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)
        except OSError:
            continue


@target(**DOUBLE)
def segfaults(x):
    """Reads the address 0."""
    if x.numel() == 1:
        ctypes.string_at(0)
    return dict(y=x * 2)


@target(**DOUBLE)
def aborts(x):
    """Aborts."""
    if x.numel() == 1:
        os.abort()
    return dict(y=x * 2)


@target(**DOUBLE)
def leaves(x):
    """Ends its process as if all was well."""
    if x.numel() == 1:
        os._exit(0)
    return dict(y=x * 2)


@target(**DOUBLE)
def exits(x):
    """Ends its program."""
    if x.numel() == 1:
        sys.exit(0)
    return dict(y=x * 2)


@target(**DOUBLE)
def forks_and_leaves(x):
    """Ends its process; a child of it stays."""
    if x.numel() == 1:
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return dict(y=x * 2)


@target(**DOUBLE)
def garbles(x):
    """Writes into every socket and pipe that it finds."""
    if x.numel() == 1:
        for each in sockets():
            os.write(each, b"\0\0\0\5hello")
    return dict(y=x * 2)


@target(**DOUBLE)
def closes(x):
    """Closes every file but the standard streams."""
    if x.numel() == 1:
        os.closerange(3, 4096)
    return dict(y=x * 2)


@target(**DOUBLE)
def kills_parent(x):
    """Kills the process that it was forked from."""
    if x.numel() == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return dict(y=x * 2)


@target(**HANGS)
def stops_itself(x):
    """Stops its process."""
    if x.numel() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return dict(y=x * 2)


@target(**HANGS)
def loops(x):
    """Never returns, and ignores the signal that asks it to end."""
    if x.numel() == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass
    return dict(y=x * 2)


@target(**DOUBLE)
def fills(x):
    """Takes all memory."""
    held = []
    while x.numel() == 1:
        held.append(torch.ones(1 << 24))
    return dict(y=x * 2)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    def __reduce__(self):
        raise RuntimeError("no bytes")


@target(**DOUBLE)
def raises_unprintable(x):
    """Raises what has no text."""
    if x.numel() == 1:
        raise Unprintable
    return dict(y=x * 2)


@target(**DOUBLE)
def raises_huge(x):
    """Raises a text of 8 MiB that no encoding and no terminal takes."""
    if x.numel() == 1:
        raise RuntimeError("\x1b[2J\udce9\0" + "z" * (8 << 20))
    return dict(y=x * 2)


@target(**DOUBLE)
def child_leaves(x):
    """Forks a child that ends at once."""
    if x.numel() == 1 and os.fork() == 0:
        os._exit(3)
    return dict(y=x * 2)


@target(**DOUBLE)
def returns_twice(x):
    """Forks, and both return; the child's result is wrong."""
    if x.numel() == 1 and os.fork() == 0:
        return dict(y=x * 2 + 1)
    return dict(y=x * 2)


@target(**DOUBLE)
def daemonises(x):
    """Leaves a process with a session and parents of its own."""
    if x.numel() == 1 and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return dict(y=x * 2)


@target(**DOUBLE)
def stops_parent(x):
    """Stops the process that it was forked from."""
    if x.numel() == 1:
        os.kill(os.getppid(), signal.SIGSTOP)
    return dict(y=x * 2)


@target(**DOUBLE)
def prints(x):
    """Prints 8 MiB to each stream."""
    if x.numel() == 1:
        os.write(1, b"p" * (4 << 20))
        print("q" * (4 << 20), file=sys.stderr)
    return dict(y=x * 2)


@target(**DOUBLE)
def changes_state(x):
    """Changes signals, folder, variables and limits of its process, and the seeds of random numbers.

    The signal comes when this case has been examined, also on a machine that does much else.
    """
    if x.numel() == 1:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 15.0)
        os.chdir("/")
        os.environ.clear()
        os.umask(0o777)
        torch.manual_seed(0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return dict(y=x * 2)
