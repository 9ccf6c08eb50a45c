"""App: the service put together: guard, API, pages, events, metrics, login."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.exceptions import HTTPException as StarletteHTTPException

from fuzz.campaign.store import Store
from fuzz.errors import StoreError, one_line
from fuzz.web import api
from fuzz.web.auth import COOKIE, LOGIN, AuthMiddleware, same, session
from fuzz.web.campaign_processes import CampaignProcesses
from fuzz.web.corpus_index import CorpusIndex
from fuzz.web.events import stream
from fuzz.web.metrics import KIND, metrics
from fuzz.web.pages import routes
from fuzz.web.pages.render import digest, page, static
from fuzz.web.plots.cache import PlotCache
from fuzz.web.plots.protocol import PlotConfig
from fuzz.web.service import Service
from fuzz.web.settings import Settings

REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body cannot be read."},
    401: {"description": "A token is needed."},
    403: {"description": "The request comes from another site."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is not said to be JSON."},
    421: {"description": "The Host header names another host."},
    503: {"description": "The store does not answer."},
}
"""What any request may be answered with."""
PAUSE = 0.5
"""Seconds that a wrong token costs."""


def make_app(settings: Settings, version: str) -> FastAPI:
    """The application. UsageError where its store cannot be opened."""
    app = FastAPI(
        title="fuzz", version=version, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Differential fuzzing of Triton kernels: campaigns, findings and the corpus.", responses=REFUSED,
    )  # fmt: skip
    gallery = PlotConfig(settings.backend, folders=settings.targets)
    runner = CampaignProcesses(settings.configs, settings.store)
    shelf = CorpusIndex(lambda: (*settings.corpora, *runner.corpora()))
    app.state.fuzz = Service(settings, Store(settings.store), shelf, PlotCache(gallery), runner)
    app.state.ending = threading.Event()
    app.include_router(api.router)
    app.include_router(routes.router)
    add_rest(app)
    add_login(app)
    add_errors(app)
    app.add_middleware(AuthMiddleware, settings=settings)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The entries on disk are the truth of findings: the store learns of those that it lacks at the start."""
    await run_in_threadpool(api.reread, app.state.fuzz)
    yield
    app.state.ending.set()
    app.state.fuzz.runner.close()
    app.state.fuzz.store.close()


def add_rest(app: FastAPI) -> None:
    @app.get("/metrics", response_class=PlainTextResponse, tags=["metrics"])
    def prometheus(request: Request) -> Response:
        """What runs and what was found, for Prometheus."""
        return Response(metrics(api.state_of(request)), media_type=KIND)

    @app.get("/api/events", include_in_schema=False)
    async def events(request: Request) -> StreamingResponse:
        told = stream(request, api.state_of(request))
        return StreamingResponse(told, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def add_login(app: FastAPI) -> None:
    """The one page that is shown without a token; it carries its own style."""

    @app.get(LOGIN, include_in_schema=False)
    def login() -> Response:
        return login_page("")

    @app.post(LOGIN, include_in_schema=False)
    async def enter(request: Request) -> Response:
        settings: Settings = request.app.state.fuzz.settings
        given = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0]
        if not settings.token or not same(given, settings.token):
            await asyncio.sleep(PAUSE)
            return login_page("That is not the token.")
        answer = RedirectResponse("/", status_code=303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, session(settings.token), httponly=True, samesite="strict", secure=secure)
        return answer


def login_page(wrong: str) -> HTMLResponse:
    style = static("fuzz.css")
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    text = page("login.html", style=style, wrong=wrong)
    return HTMLResponse(text, status_code=401 if wrong else 200, headers={"content-security-policy": policy})


def add_errors(app: FastAPI) -> None:
    """Errors as JSON for programs and as a page for people; nothing of a request stands in them unescaped."""

    @app.exception_handler(StarletteHTTPException)
    async def known(request: Request, error: StarletteHTTPException) -> Response:
        return told(request, error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        wrong = [
            {"loc": [str(part) for part in one["loc"]], "msg": one["msg"], "type": one["type"]}
            for one in error.errors()
        ]
        if wants_page(request):
            return told(request, 422, "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in wrong), {})
        # What was given is left out: it may not even be text that can be sent back.
        return JSONResponse({"detail": wrong}, status_code=422)

    @app.exception_handler(StoreError)
    async def broken(request: Request, error: StoreError) -> Response:
        return told(request, 503, one_line(error), {})


def told(request: Request, status: int, text: str, headers: dict[str, str]) -> Response:
    if wants_page(request):
        return HTMLResponse(page("error.html", status=status, text=text), status_code=status, headers=headers)
    return JSONResponse({"detail": text}, status_code=status, headers=headers)


def wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
