"""Answers HEAD as GET, without the body: monitors and crawlers ask so."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

STREAMS = ("/api/events",)
"""Paths whose answer is the body, and has no end."""


class HeadMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD" and scope["path"] not in STREAMS
        if is_head:
            await self.app({**scope, "method": "GET"}, receive, without_body(send))
        else:
            await self.app(scope, receive, send)


def without_body(send: Send) -> Send:
    """Sends a response whose headers tell the length of a body that is left out."""

    async def send_headers(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_headers
