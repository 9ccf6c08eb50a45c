"""Puts the service together: authentication, API, pages, events, metrics, login and errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
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
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from fuzz.campaign.store import Store
from fuzz.errors import FuzzError, StoreError, one_line
from fuzz.web import api, judge_api
from fuzz.web.auth import COOKIE, LOGIN, AuthMiddleware, WrongTokens, client_address, equal_secrets, session_cookie
from fuzz.web.campaign_processes import CampaignProcesses, ConflictError
from fuzz.web.corpus_index import CorpusIndex
from fuzz.web.entry_plots.client import PlotCache, PlotConfig
from fuzz.web.events import MAX_STREAMS, stream
from fuzz.web.head_requests import HeadMiddleware
from fuzz.web.judge_queue import JudgeQueue
from fuzz.web.metrics import metrics
from fuzz.web.pages import routes
from fuzz.web.pages.render import STATIC, csp_hash, read_static, render
from fuzz.web.service import Service
from fuzz.web.settings import Settings

COMMON_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body cannot be read."},
    401: {"description": "A token is needed."},
    403: {"description": "The request comes from another site."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is not said to be JSON."},
    429: {"description": "Too many wrong tokens came from this address."},
    421: {"description": "The Host header names another host."},
    503: {"description": "The store does not answer."},
}
"""What any request may be answered with."""
WRONG_TOKEN_DELAY = 0.5
"""Seconds that a wrong token costs."""
LOGIN_POLICY = "default-src 'none'; style-src '{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


def make_app(settings: Settings, version: str) -> FastAPI:
    """The application. UsageError where its store cannot be opened."""
    app = FastAPI(
        title="fuzz", version=version, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Differential fuzzing of Triton kernels: campaigns, findings and the corpus.",
        responses=COMMON_RESPONSES,
    )  # fmt: skip
    processes = CampaignProcesses(settings.configs, settings.store)
    index = CorpusIndex(
        lambda: (*settings.corpora, *(Path(one.corpus) for one in processes.configs().values() if not one.error))
    )
    plots = PlotCache(PlotConfig(settings.backend, target_folders=settings.targets))
    store = Store(settings.store)
    queue = JudgeQueue(store, settings.judge_workers)
    app.state.fuzz = Service(settings, store, index, plots, processes, queue)
    app.state.ending = threading.Event()
    for router in (api.router, judge_api.router, routes.router, routes.judge_router):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    add_streams(app)
    add_login(app)
    add_error_handlers(app)
    app.state.streams, app.state.wrong_tokens = 0, WrongTokens()
    app.add_middleware(HeadMiddleware)
    app.add_middleware(AuthMiddleware, settings=settings, wrong_tokens=app.state.wrong_tokens)
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Rebuilds the store's findings from the corpus, which is their truth, and closes everything at the end."""
    service: Service = app.state.fuzz
    await run_in_threadpool(api.rebuild_findings, service)
    if service.settings.judge:
        service.judge_queue.start()
    yield
    app.state.ending.set()
    await run_in_threadpool(service.judge_queue.close)
    service.processes.close()
    service.store.close()


def add_streams(app: FastAPI) -> None:
    @app.get("/metrics", response_class=PlainTextResponse, tags=["metrics"])
    def prometheus(service: api.TheService) -> Response:
        """What runs and what was found, for Prometheus."""
        return Response(metrics(service), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/api/events", include_in_schema=False)
    async def events(request: Request, service: api.TheService) -> StreamingResponse:
        if request.app.state.streams >= MAX_STREAMS:
            raise StarletteHTTPException(503, "too many pages are open")
        lines = stream(request, service)
        return StreamingResponse(lines, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def add_login(app: FastAPI) -> None:
    """The one page that is shown without a token; it carries its own style."""

    @app.get(LOGIN, include_in_schema=False)
    def login() -> Response:
        return login_page("")

    @app.post(LOGIN, include_in_schema=False)
    async def submit_login(request: Request) -> Response:
        settings: Settings = request.app.state.fuzz.settings
        try:
            body = await request.body()
        except ClientDisconnect:
            raise StarletteHTTPException(400, "the body is too long, or did not come in time") from None
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not settings.token or not equal_secrets(given, settings.token):
            request.app.state.wrong_tokens.add(client_address(request.scope))
            await asyncio.sleep(WRONG_TOKEN_DELAY)
            return login_page("That is not the token.")
        response = RedirectResponse("/", status_code=303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, session_cookie(settings.token), httponly=True, samesite="strict", secure=secure)
        return response


def login_page(error: str) -> HTMLResponse:
    style = read_static("fuzz.css")
    policy = LOGIN_POLICY.format(style=csp_hash(style))
    text = render("login.html", style=style, error=error)
    return HTMLResponse(text, status_code=401 if error else 200, headers={"content-security-policy": policy})


def add_error_handlers(app: FastAPI) -> None:
    """Errors as JSON for programs and as a page for people; nothing of a request stands in them unescaped."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        return error_response(request, error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # What was given is left out: it may not even be text that can be sent back.
        details = [
            {"loc": [str(part) for part in problem["loc"]], "msg": problem["msg"], "type": problem["type"]}
            for problem in error.errors()
        ]
        text = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in details)
        return error_response(request, 422, text) if wants_page(request) else JSONResponse({"detail": details}, 422)

    @app.exception_handler(ConflictError)
    @app.exception_handler(StoreError)
    async def own_error(request: Request, error: FuzzError) -> Response:
        return error_response(request, 409 if isinstance(error, ConflictError) else 503, one_line(error))


def error_response(request: Request, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    if wants_page(request):
        page = render("error.html", status=status, text=text, retry_seconds=(headers or {}).get("retry-after"))
        return HTMLResponse(page, status_code=status, headers=headers)
    return JSONResponse({"detail": text}, status_code=status, headers=headers)


def wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
