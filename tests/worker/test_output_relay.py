"""What a worker prints reaches standard error whole, however it is cut, and without what a terminal would obey."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from fuzz.worker.child import output_relay
from fuzz.worker.child.output_relay import OutputRelay


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pipe that a relay writes to as its standard error: the end that is read."""
    reader, writer = os.pipe()
    monkeypatch.setattr(output_relay, "STANDARD_ERROR", writer)
    os.set_blocking(reader, False)
    yield reader
    os.close(reader)
    os.close(writer)


def test_a_character_in_two_writes_is_one_and_controls_are_escaped(shown: int) -> None:
    relay = OutputRelay(os.dup(output_relay.STANDARD_ERROR))
    for part in ("10 %\r20 %\tм".encode()[:-1], "м".encode()[-1:] + b"\x1b[31m\x07\xff\n"):
        os.write(relay._end, part)
        while relay.forward():
            pass
    assert os.read(shown, 1000).decode() == "10 %\r20 %\tм\\x1b[31m\\x07\\xff\n"


def test_who_reads_nothing_makes_the_worker_wait_and_not_its_supervisor(shown: int) -> None:
    relay, poll, size = OutputRelay(os.dup(output_relay.STANDARD_ERROR)), select.poll(), 1 << 16

    def forward() -> None:
        while relay.register(poll) or poll.poll(0):
            relay.forward()

    for text in (b"a", b"b"):
        os.write(relay._end, text * size)
        forward()
    with pytest.raises(BlockingIOError):
        os.set_blocking(relay._end, False)
        while True:
            os.write(relay._end, b"c" * size)
            forward()
    received = b""
    while len(received) < 2 * size:
        received += os.read(shown, size)
        forward()
    assert received[: 2 * size] == b"a" * size + b"b" * size


def test_output_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(output_relay, "STANDARD_ERROR", writer)
    os.close(reader)
    relay = OutputRelay(os.dup(output_relay.STANDARD_ERROR))
    os.write(relay._end, b"lost")
    assert relay.forward() and relay.forward() and not relay.forward()
    relay.read_only()
    relay.drain()
    os.close(writer)
