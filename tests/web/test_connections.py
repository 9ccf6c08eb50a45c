"""Clients that send nothing, or read nothing, over real sockets: they are cut off, and the others are answered."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import pytest
from fastapi import FastAPI, Request

from fuzz.web import auth
from fuzz.web import server as connections
from fuzz.web.server import bind, make_server

HALF_HEADER = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "
HALF_BODY = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\na"
PATIENCE = 120.0


@contextmanager
def served(app: FastAPI) -> Iterator[int]:
    """The port of a server that runs in a thread."""
    with bind("127.0.0.1", 0) as listening:
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def wait_for(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.02)


def connect(stack: ExitStack, port: int, data: bytes) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
    client.sendall(data)
    return client


def status(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/login")
    with connection.getresponse() as response:
        response.read()
    connection.close()
    return response.status


@pytest.mark.parametrize("data", [b"", HALF_HEADER, b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF_HEADER])
def test_a_header_that_does_not_come_closes_its_connection(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)
    with served(app) as port, ExitStack() as stack:
        client = connect(stack, port, data)
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 200" if b"login" in data else b"")


def test_a_body_that_does_not_come_is_answered(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.1)
    with served(app) as port, ExitStack() as stack:
        assert connect(stack, port, HALF_BODY).recv(12) == b"HTTP/1.1 400"


def test_a_client_that_reads_nothing_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.1)
    with served(app) as port, ExitStack() as stack:
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", port))
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)


@pytest.mark.parametrize("data", [b"", HALF_HEADER])
def test_connections_that_wait_make_room_for_one_more(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr("fuzz.web.server.MAX_CONNECTIONS", 8)
    with served(app) as port, ExitStack() as stack:
        for _ in range(20):
            connect(stack, port, data)
        assert [status(port) for _ in range(3)] == [200] * 3


def test_a_request_waits_until_fewer_are_answered_and_is_refused_where_that_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    app, begun, gate = FastAPI(), list[str](), threading.Event()
    app.state.ending = threading.Event()

    @app.get("/login")
    async def answer() -> None: ...

    @app.get("/wait")
    async def wait() -> None:
        begun.append("")
        while not gate.is_set():
            await asyncio.sleep(0.02)

    with served(app) as port, ExitStack() as stack:
        for count in (1, 2):
            connect(stack, port, b"GET /wait HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wait_for(lambda count=count: len(begun) == count)
        monkeypatch.setattr(connections, "ROOM_SECONDS", 0.1)
        assert status(port) == 503
        monkeypatch.setattr(connections, "ROOM_SECONDS", PATIENCE)
        client = connect(stack, port, b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        gate.set()
        assert client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(("version", "expected"), [("1.0", 200), ("1.1", 200), ("9.9", 400), ("0.9", 400)])
def test_other_versions_than_http_1_are_refused(app: FastAPI, version: str, expected: int) -> None:
    with served(app) as port, ExitStack() as stack:
        client = connect(stack, port, f"GET /login HTTP/{version}\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert client.recv(12) == f"HTTP/1.1 {expected}".encode()


def test_requests_whose_clients_have_gone_take_no_room_and_what_they_change_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    app, begun, done = FastAPI(), list[str](), list[str]()
    app.state.ending = threading.Event()

    @app.get("/login")
    async def answer() -> None: ...

    @app.get("/wait")
    @app.post("/wait")
    async def wait(request: Request) -> None:
        begun.append(request.method)
        await asyncio.sleep(0.5 if request.method == "POST" else PATIENCE)
        done.append(request.method)

    with served(app) as port:
        for method in ["GET"] * 20 + ["POST"]:
            with ExitStack() as stack:
                count, head = len(begun), f"{method} /wait HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
                client = connect(stack, port, head.encode())
                wait_for(lambda count=count: len(begun) > count)
                # Closed like this it is reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert status(port) == 200
        wait_for(lambda: bool(done))
    assert done == ["POST"]
