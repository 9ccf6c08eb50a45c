"""Checks every request before anything else looks at it. Plain ASGI, so that streams pass too.

- On loopback the Host header must name loopback: a page of another site whose name was made to resolve to 127.0.0.1
  (DNS rebinding) does not.
- With a token every request but the login page carries it, in a header or as the login's cookie.
- A request that changes something is JSON and, by what browsers say of it, comes from our own pages: a form or script
  of another site can send neither without a preflight, which nothing here answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fuzz.web.settings import Settings, is_loopback

COOKIE = "fuzz_session"
LOGIN = "/login"
LARGEST_BODY = 1 << 16
"""Bytes of a request's body."""
LARGEST_OF = {"/api/judge": 1 << 22}
"""Bytes of the body of requests that carry files."""
BODY_SECONDS = 20.0
"""Seconds in which a request's body must have come."""
OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of requests from our own pages, and of those that a person typed."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
MAX_WRONG, WINDOW = 30, 60.0
"""Wrong tokens of one client within so many seconds, at most, so that no token is found by trying."""
MAX_CLIENTS = 4096
"""Clients whose wrong tokens are counted; the one whose count began first is forgotten first."""
Refusal = tuple[int, str]
"""Status and reason with which a request is refused."""


def session_cookie(token: str) -> str:
    """The value of the login's cookie: made from the token, which cannot be recovered from it."""
    return hmac.new(token.encode(), b"fuzz serve session", hashlib.sha256).hexdigest()


def equal_secrets(given: str, expected: str) -> bool:
    """Equality in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


@dataclass
class WrongTokens:
    """Wrong tokens by the client's address. Until its seconds have passed, not even the right one is looked at."""

    counts: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    """Address -> (when its first wrong token came, how many have come since)."""

    def add(self, address: str) -> None:
        now = time.monotonic()
        if address in self.counts and now - self.counts[address][0] >= WINDOW:
            del self.counts[address]
        began, count = self.counts.get(address, (now, 0))
        self.counts[address] = began, count + 1
        while len(self.counts) > MAX_CLIENTS:
            self.counts.popitem(last=False)

    def seconds_left(self, address: str) -> float:
        """Seconds for which no token of this client is looked at; 0 where the next one is."""
        began, count = self.counts.get(address, (0.0, 0))
        return max(began + WINDOW - time.monotonic(), 0.0) if count >= MAX_WRONG else 0.0


class AuthMiddleware:
    def __init__(self, app: ASGIApp, settings: Settings, wrong_tokens: WrongTokens) -> None:
        self.app, self.settings, self.wrong_tokens = app, settings, wrong_tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            headers = Headers(scope=scope)
            refusal = self.check(scope["method"], scope["path"], headers, client_address(scope))
            app = refusal_response(scope["method"], headers, *refusal) if refusal else self.app
            await app(scope, limit_body(receive, largest_body(scope["path"])), add_security_headers(send))

    def check(self, method: str, path: str, headers: Headers, address: str) -> Refusal | None:
        """Why a request is refused; None where it is answered."""
        if self.settings.loopback and not is_loopback(headers.get("host", "")):
            return 421, "this service answers to localhost and 127.0.0.1 only"
        if self.settings.token and (refusal := self.check_token(method, path, headers, address)):
            return refusal
        if headers.get("sec-fetch-site", "none") not in OWN_SITES and headers.get("sec-fetch-mode") != "navigate":
            return 403, "pages of other sites may link here, and nothing else"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= largest_body(path)):
            return 413, f"a body has at most {largest_body(path)} bytes"
        return None if method in SAFE_METHODS else check_origin(headers, form=path == LOGIN)

    def check_token(self, method: str, path: str, headers: Headers, address: str) -> Refusal | None:
        """Why a request is refused for its token; wrong ones are counted."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if path == LOGIN and method in SAFE_METHODS:
            return None
        if (path == LOGIN or bearer or cookie) and (seconds := self.wrong_tokens.seconds_left(address)):
            return 429, f"too many wrong tokens; try again in {math.ceil(seconds)} s"
        token = self.settings.token
        if path == LOGIN or equal_secrets(bearer, token) or equal_secrets(cookie, session_cookie(token)):
            return None
        if bearer or cookie:
            self.wrong_tokens.add(address)
        return 401, "a token is needed: log in, or send Authorization: Bearer TOKEN"


def client_address(scope: Scope) -> str:
    """The address that a request comes from, without its port."""
    return scope["client"][0] if scope.get("client") else ""


def largest_body(path: str) -> int:
    """Bytes that the body of a request to this path may have."""
    return LARGEST_OF.get(path, LARGEST_BODY)


def limit_body(receive: Receive, largest: int) -> Receive:
    """Receives a body of at most so many bytes within BODY_SECONDS, whatever is said of it; one that is longer ends."""
    left, complete, until = largest, False, asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive_limited() -> Message:
        nonlocal left, complete
        try:
            async with asyncio.timeout_at(None if complete else until):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        left -= len(message.get("body", b""))
        complete = not message.get("more_body", False)
        return message if left >= 0 else {"type": "http.disconnect"}

    return receive_limited


def check_origin(headers: Headers, *, form: bool) -> Refusal | None:
    """Why a request that changes something may come from another site's page, if it may."""
    origin = headers.get("origin")
    foreign = origin is not None and not is_same_origin(origin, headers.get("host", ""))
    if foreign or headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return 403, "requests of other sites change nothing here"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not form and kind != "application/json":
        return 415, "send Content-Type: application/json"
    return None


def is_same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def add_security_headers(send: Send) -> Send:
    """Adds SECURITY_HEADERS to a response that does not set them itself."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def refusal_response(method: str, headers: Headers, status: int, reason: str) -> Response:
    """The reason as JSON; a browser that is not logged in is led to the login page."""
    if status == 401 and method == "GET" and "text/html" in headers.get("accept", ""):
        return RedirectResponse(LOGIN, status_code=303)
    challenge = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"detail": reason}, status_code=status, headers=challenge)
