"""Checks of what this program reads, one function a surface: bytes -> None, which raises only what is a defect.

An error that a surface documents is no defect. Anything else that it raises is one, and so is what a check asserts.
"""

from __future__ import annotations

import math
import pickle
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz.backends.cpu.errors import MalformedIR, UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import walk
from fuzz.backends.cpu.frontend.parser import parse
from fuzz.backends.cpu.ops.table import OPERATIONS
from fuzz.campaign.config import load_config
from fuzz.campaign.jobs import create_jobs
from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError
from fuzz.model.entry import Entry
from fuzz.worker import channel
from fuzz.worker.channel import Channel, ChannelClosed, GarbledError, HandlerResponse

MAX_ELEMENTS = 1 << 12
"""Stored elements of the largest case whose digest is computed: reading allows more, which only takes longer."""
MAX_STEPS = 64
"""What is written into a channel before anybody reads it, so that it fits into the socket."""
MAX_MESSAGE = 1000
"""Characters of the longest message about what is wrong."""


def check_codec(data: bytes) -> None:
    """An entry that is read is written as text that gives the same entry, and keeps its digest."""
    try:
        entry = codec.loads(data, digest=False)
    except CorpusError as error:
        _check_message(error)
        return
    if _stored_elements(entry) > MAX_ELEMENTS:
        return
    try:
        text = codec.dumps(entry)
    except ValueError:
        # Exact bits that do not fill their tensor have no digest.
        _check_refused(data)
        return
    again = codec.loads(text.encode())
    # Not by ==, under which no entry with a ratio that is no number equals itself.
    assert repr(again) == repr(entry), "an entry changes where it is written and read"
    assert codec.dumps(again) == text, "an entry's text changes where it is read and written"
    assert again.digest == entry.digest and again.name == entry.name


def _check_refused(data: bytes) -> None:
    try:
        codec.loads(data)
    except CorpusError as error:
        _check_message(error)
    else:
        raise AssertionError("an entry is read that cannot be written")


def _stored_elements(entry: Entry) -> int:
    calls = entry.case.calls
    return sum(math.prod(value.stored_shape(call.dims)) for call in calls for value in call.tensors.values())


def _check_message(error: Exception) -> None:
    text = str(error)
    assert text and "\n" not in text and len(text) <= MAX_MESSAGE, f"not one line: {text[:MAX_MESSAGE]!r}"


def check_config(data: bytes) -> None:
    """A campaign file gives a configuration, of which a list of jobs can be made; or one line says what is wrong."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            config = load_config(Path(file.name))
            # A pattern of paths is matched against the folders of this machine.
            if not any(character in target for target in config.targets for character in "/.*"):
                jobs = create_jobs(config, 1)
                assert jobs and len(jobs) == len(set(jobs)), "a job is missing or there twice"
        except UsageError as error:
            _check_message(error)


def check_ttir(data: bytes) -> None:
    """TTIR becomes a tree of operations, each with a definition, whose values all have a type."""
    try:
        functions = parse(data.decode("utf-8", "replace"), OPERATIONS)
    except (UnsupportedOperation, MalformedIR):
        return
    for function in functions:
        for _, op in walk(function.blocks):
            assert op.definition is OPERATIONS[op.name]
            assert all(value.type for value in (*op.operands, *op.results))


def check_channel(data: bytes) -> None:
    """Each message that was sent whole arrives once, in order; what follows foreign bytes is never taken for one.

    The bytes are a script of steps: what to write into the channel, how many bytes, and these bytes.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _sent_pickles() as frames:
        receiver, sent, intact = Channel(ours), [], True
        for step, chunk in _steps(data):
            message = HandlerResponse(len(sent), chunk)
            frame = frames(message)
            written = frame if step == 0 else chunk if step == 1 else frame[: len(chunk)] + frame[len(chunk) + 1 :]
            intact &= step == 0
            sent += [message] * intact
            theirs.sendall(written)
        theirs.shutdown(socket.SHUT_WR)
        assert _receive_all(receiver)[: len(sent)] == sent, "a message is lost or changed"


def _steps(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(0 a message with these bytes, 1 these bytes, 2 a message that lacks a byte at the length of these bytes)."""
    for _ in range(MAX_STEPS):
        if len(data) < 2:
            return
        step, size = data[0] % 3, data[1]
        yield step, data[2 : 2 + size]
        data = data[2 + size :]


def _receive_all(receiver: Channel) -> list[Any]:
    """All messages until the channel ends or is garbled; it never waits, as nobody writes any more."""
    received = []
    while True:
        try:
            message = receiver.receive(0)
        except (ChannelClosed, GarbledError):
            return received
        assert message is not None, "the end of a channel is not noticed"
        received.append(message)


@contextmanager
def _sent_pickles() -> Iterator[Callable[[Any], bytes]]:
    """Makes frames of messages. Inside, unpickling anything but these messages is a defect, and is not done."""
    pickles: set[bytes] = set()

    def frame(message: Any) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            Channel(ours).send(message)
            data = theirs.recv(1 << 16)
        pickles.add(data[channel.HEADER.size :])
        return data

    def load(data: Any) -> Any:
        assert bytes(data) in pickles, "bytes that are no message are unpickled"
        return pickle.loads(data)

    before, channel.pickle = channel.pickle, SimpleNamespace(**{**vars(pickle), "loads": load})  # type: ignore[attr-defined]
    try:
        yield frame
    finally:
        channel.pickle = before  # type: ignore[attr-defined]


SURFACES: Mapping[str, Callable[[bytes], None]] = {
    "codec": check_codec,
    "config": check_config,
    "ttir": check_ttir,
    "channel": check_channel,
}
