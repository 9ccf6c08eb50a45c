"""Runs the web server until it is ended. It binds the socket first, so that a port that is taken is a clear error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from fuzz.errors import UsageError
from fuzz.web.app import make_app
from fuzz.web.connections import MAX_CONNECTIONS, ConnectionProtocol
from fuzz.web.settings import Settings

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
        on_listening(format_address(settings.host, listening.getsockname()[1]))
        with suppress(KeyboardInterrupt):
            make_server(app).run(sockets=[listening])
    return 0


def make_server(app: FastAPI) -> Server:
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE, server_header=False,
        http=ConnectionProtocol, ws="none", limit_concurrency=MAX_CONNECTIONS + 1,
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


def format_address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
