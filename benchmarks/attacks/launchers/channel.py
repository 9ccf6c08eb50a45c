"""Launchers that attack the channel over which their process answers."""

from __future__ import annotations

import os
import socket
import threading
import time

from benchmarks.attacks.launchers.declare import NONE, hostile


def channels():
    """The sockets and pipes that this process holds beside its standard streams."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", "pipe:")):
                yield int(name)
        except OSError:
            continue


def write_all(data: bytes) -> None:
    for each in channels():
        try:
            os.set_blocking(each, False)
            os.write(each, data)
            os.set_blocking(each, True)
        except OSError:
            continue


@hostile("died")
def writes_a_short_message(x):
    """Writes a message of five bytes into every channel."""
    write_all(b"\0\0\0\5hello")


@hostile("died", "hung", timeout=2.0)
def writes_half_a_message(x):
    """Writes the length of a long message into every channel, and nothing behind it."""
    write_all(b"\x00\x0f\xff\xff")


@hostile("died")
def writes_the_largest_length(x):
    """Writes that a message of 2^63 bytes follows."""
    write_all(b"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff")


@hostile("died")
def writes_a_pickle_that_executes(x):
    """Writes a pickle that makes a file where it is read."""
    text = b"cos\nsystem\n(S'touch pwned'\ntR."
    write_all(len(text).to_bytes(4, "big") + text)


@hostile("died", "hung", timeout=2.0)
def reads_what_comes_next(x):
    """Reads from every channel what its process is sent next."""
    for each in channels():
        os.set_blocking(each, False)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        for each in channels():
            try:
                os.read(each, 1 << 16)
            except OSError:
                continue
    time.sleep(600)


@hostile("died")
def shuts_its_channels(x):
    """Shuts down every socket."""
    for each in channels():
        try:
            socket.socket(fileno=os.dup(each)).shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


@hostile(NONE)
def makes_its_channels_return_at_once(x):
    """Makes every channel return at once where nothing is to be read."""
    for each in channels():
        os.set_blocking(each, False)


@hostile("died")
def puts_nothing_in_their_place(x):
    """Puts /dev/null in the place of every channel."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in list(channels()):
        os.dup2(null, each)


@hostile("died", "hung", timeout=2.0)
def closes_everything(x):
    """Closes all files, the standard streams among them."""
    os.closerange(0, 4096)


@hostile(NONE, "died")
def writes_later(x):
    """Writes into every channel from a thread, a moment after the launcher has returned."""
    threading.Timer(0.2, write_all, [b"\0\0\0\5hello"]).start()


@hostile(NONE)
def child_answers(x):
    """Forks a child that returns a wrong result, and waits until it has answered."""
    if os.fork() == 0:
        return dict(y=x * 3)
    time.sleep(1.0)
    return None
