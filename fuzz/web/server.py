"""Runs the web server until it is ended. It binds the socket first, so that a port that is taken is a clear error."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import uvicorn
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fuzz.errors import UsageError
from fuzz.web.app import make_app
from fuzz.web.settings import Settings

HEADER_SECONDS = 10.0
"""Seconds in which the header of a request must have come, from when it may begin."""
READ_SECONDS = 30.0
"""Seconds in which a client must have read something of a response that waits for it."""
MAX_CONNECTIONS = 200
"""Connections at once; one more takes the place of one that waits for a request."""
ROOM_SECONDS = 2.0
"""Seconds in which a request waits until fewer are being answered. Those whose clients have gone end in that time."""
SAFE_METHODS = ("GET", "HEAD")
"""Requests that change nothing, so that one which nobody waits for needs no answer."""
CLOSE = {"Connection": "close"}


class LimitedApp:
    """Answers as many requests at once as there may be connections; as many more wait, and further ones are refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif await self._enter():
            try:
                await self._app(scope, receive, send)
            finally:
                self._room.release()
        else:
            await PlainTextResponse("Service Unavailable", 503, CLOSE)(scope, receive, send)

    async def _enter(self) -> bool:
        """Waits for room; whether there is some."""
        if self._waiting >= MAX_CONNECTIONS:
            return False
        self._waiting += 1
        try:
            with anyio.move_on_after(ROOM_SECONDS):
                return await self._room.acquire()
        finally:
            self._waiting -= 1
        return False


class ConnectionProtocol(H11Protocol):
    """One connection of a client.

    It is closed where it only waits, so that clients that send nothing, or read nothing, leave room for the others.
    What changes nothing is given up where its client has gone.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    idle_since: float = 0.0
    _scope: anyio.CancelScope | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._whole_app, self.app = self.app, self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if not scope["http_version"].startswith("1."):
            await PlainTextResponse("Unsupported HTTP version", 400, CLOSE)(scope, receive, send)
        elif scope["method"] not in SAFE_METHODS:
            await self._whole_app(scope, receive, send)
        elif not self.cycle.disconnected:
            with anyio.CancelScope() as self._scope:
                await self._whole_app(scope, receive, send)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the header of a request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_header()
        if len(self.connections) >= MAX_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._cancel(self._header_timer)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_header()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._scope is not None:
            # A thread that works for it goes on to its end; what waits for one does not.
            self._scope.cancel()
        self._cancel(self._header_timer)
        self._cancel(self._read_timer)

    def _wait_for_header(self) -> None:
        self._cancel(self._header_timer)
        if self.is_idle:
            self.idle_since = self.loop.time()
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _make_room(self) -> None:
        """Closes a connection that waits: of the client that has most of them the one that has waited longest."""
        others = [other for other in self.connections if isinstance(other, ConnectionProtocol) and other is not self]
        idle = [other for other in others if other.is_idle and not other.transport.is_closing()]
        count = Counter(other.address for other in idle)
        if idle:
            min(idle, key=lambda other: (-count[other.address], other.idle_since)).transport.abort()

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


GRACE = 3
"""Seconds that open connections have when the service ends."""


class Server(uvicorn.Server):
    """Ends streams before it waits for open connections."""

    def __init__(self, config: uvicorn.Config, ending: threading.Event) -> None:
        super().__init__(config)
        self.ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.ending.set()
        await super().shutdown(sockets)


def run(settings: Settings, version: str, on_listening: Callable[[str], None]) -> int:
    """Serves until Ctrl-C or SIGTERM. UsageError where it cannot listen or its store cannot be opened."""
    with bind(settings.host, settings.port) as listening:
        app = make_app(settings, version)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        on_listening(f"http://{host}:{listening.getsockname()[1]}/")
        with suppress(KeyboardInterrupt):
            make_server(app).run(sockets=[listening])
    return 0


def make_server(app: FastAPI) -> Server:
    config = uvicorn.Config(
        LimitedApp(app), log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE, server_header=False,
        http=ConnectionProtocol, ws="none",
    )  # fmt: skip
    return Server(config, app.state.ending)


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address. UsageError where it cannot be."""
    bound = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return bound
