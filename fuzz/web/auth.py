"""AuthMiddleware: what every request passes before anything else looks at it. Plain ASGI, so that streams pass too.

- On loopback the Host header must name loopback: a page of another site whose name was made to resolve to 127.0.0.1
  (DNS rebinding) does not.
- With a token every request but the login page carries it, in a header or as the login's cookie.
- A request that changes something is JSON and, by what browsers say of it, comes from our own pages: a form or script
  of another site can send neither without a preflight, which nothing here answers.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fuzz.web.settings import Settings

COOKIE = "fuzz_session"
LOGIN = "/login"
LARGEST = 1 << 16
"""Bytes of a request's body."""
OWN = ("same-origin", "none")
"""What a browser says of requests from our own pages, and of those that a person typed."""
SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Headers = Mapping[str, str]


def session(token: str) -> str:
    """What the login's cookie holds: made from the token, which cannot be had back from it."""
    return hmac.new(token.encode(), b"fuzz serve session", hashlib.sha256).hexdigest()


def same(given: str, due: str) -> bool:
    """Equality in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), due.encode())


class AuthMiddleware:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refused(scope["method"], scope["path"], headers)
        if refused:
            await refuse(scope, headers, refused, send)
            return
        limited = BodyLimit(receive)
        await self.app(scope, limited, decorated(send))

    def refused(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """(status, why) where a request is not answered."""
        if self.settings.loopback and not local(headers.get("host", "")):
            return 421, "this service answers to localhost and 127.0.0.1 only"
        if path != LOGIN and self.settings.token and not self.known(headers):
            return 401, "a token is needed: log in, or send Authorization: Bearer TOKEN"
        if headers.get("sec-fetch-site", "none") not in OWN and headers.get("sec-fetch-mode") != "navigate":
            return 403, "pages of other sites may link here, and nothing else"
        if not length(headers) <= LARGEST:
            return 413, f"a body has at most {LARGEST} bytes"
        if method not in SAFE:
            return foreign(headers, form=path == LOGIN)
        return None

    def known(self, headers: Headers) -> bool:
        """Whether a request carries the token."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(given.strip(), self.settings.token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, session(self.settings.token))


class BodyLimit:
    """Receives a body, up to LARGEST bytes whatever its length was said to be; what is longer ends there."""

    def __init__(self, receive: Receive) -> None:
        self.receive, self.left = receive, LARGEST

    async def __call__(self) -> Message:
        message = await self.receive()
        body = message.get("body", b"")
        self.left -= len(body)
        if self.left < 0:
            return {"type": "http.disconnect"}
        return message


def local(host: str) -> bool:
    """Whether a Host header names this machine's loopback, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def length(headers: Headers) -> float:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else float("inf")


def foreign(headers: Headers, *, form: bool) -> tuple[int, str] | None:
    """Why a request that changes something may come from another site's page, if it may."""
    if headers.get("sec-fetch-site", "none") not in OWN:
        return 403, "requests of other sites change nothing here"
    origin = headers.get("origin")
    if origin is not None and not same_origin(origin, headers.get("host", "")):
        return 403, "requests of other sites change nothing here"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not form and kind != "application/json":
        return 415, "send Content-Type: application/json"
    return None


def same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def decorated(send: Send) -> Send:
    """Adds HEADERS to an answer that does not set them itself."""

    async def sends(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.decode("latin-1").lower() for name, _ in message["headers"]}
            more = [(name.encode(), text.encode()) for name, text in HEADERS.items() if name not in given]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sends


async def refuse(scope: Scope, headers: Headers, why: tuple[int, str], send: Send) -> None:
    """Answers with the reason; a browser that is not logged in is led to the login page."""
    status, text = why
    fields = [(b"content-type", b"application/json")]
    if status == 401 and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        status, fields = 303, [*fields, (b"location", LOGIN.encode())]
    elif status == 401:
        fields.append((b"www-authenticate", b"Bearer"))
    body = json.dumps({"detail": text}).encode()
    fields.append((b"content-length", str(len(body)).encode()))
    answer = decorated(send)
    await answer({"type": "http.response.start", "status": status, "headers": fields})
    await answer({"type": "http.response.body", "body": body})
