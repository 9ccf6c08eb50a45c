"""Web: the pages, made on the server from templates that escape every text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response

from fuzz.model.entry import STATUSES, Entry
from fuzz.model.finding import ORACLES, VERDICTS
from fuzz.web import formatting
from fuzz.web.api import Filters, Key, Number, Text, book, lanes, state_of
from fuzz.web.corpus_index import IndexedEntry, entry_of
from fuzz.web.pages.render import STATIC, page
from fuzz.web.pages.views import view
from fuzz.web.plots.trend import trends

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
STATICS = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}
"""What may be had as it is, by name."""


def shown(request: Request, name: str, **values: Any) -> HTMLResponse:
    """A whole page."""
    guarded = bool(state_of(request).settings.token)
    return HTMLResponse(page(name, words=formatting, here=request.url.path, logged_in=guarded, **values))


@router.get("/static/{name}")
def static(name: str) -> Response:
    path = STATICS.get(name)
    if path is None:
        raise HTTPException(404, "no such file")
    return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"cache-control": "no-cache"})


@router.get("/")
def dashboard(request: Request) -> HTMLResponse:
    state = state_of(request)
    return shown(
        request, "dashboard.html", campaigns=state.campaigns(), configs=state.runner.configs(),
        working=state.runner.working(), last_words=state.runner.last_words(), findings=state.recent(),
        open=state.store.count_findings(status="open"), entries=len(state.shelf.books()),
    )  # fmt: skip


@router.get("/campaigns/{number}")
def campaign(request: Request, number: Number) -> HTMLResponse:
    state = state_of(request)
    found = state.campaign(number)
    if found is None:
        raise HTTPException(404, "no such campaign")
    return shown(
        request, "campaign.html", campaign=state.summary(found), config=found.config, lanes=lanes(state, number),
        workers=state.store.heartbeats(number), plots=trends(state.store.statistics(number)),
        findings=state.store.findings(campaign=number, limit=100),
    )  # fmt: skip


@router.get("/findings")
def findings(request: Request, filters: Annotated[Filters, Query()]) -> HTMLResponse:
    state = state_of(request)
    every = state.store.findings(limit=10_000)
    choices = {
        "target": sorted({one.target for one in every}),
        "oracle": [name for name in ORACLES if any(one.oracle == name for one in every)],
        "verdict": list(VERDICTS),
        "status": list(STATUSES),
        "planted": sorted({one.planted for one in every if one.planted}),
    }
    found = filters.found(state)
    return shown(
        request, "findings.html", found=found.findings, count=found.count, filters=filters, choices=choices,
        older=query(filters, filters.offset + filters.limit) if filters.offset + filters.limit < found.count else "",
        newer=query(filters, max(filters.offset - filters.limit, 0)) if filters.offset else "",
    )  # fmt: skip


def query(filters: Filters, offset: int) -> str:
    """The same filters on another page, as a query string."""
    given = filters.model_dump(exclude_defaults=True) | {"offset": offset}
    return "?" + urlencode({name: value for name, value in given.items() if value not in (None, "")})


@router.get("/findings/{key}")
def finding(request: Request, key: Key) -> HTMLResponse:
    state, one = state_of(request), book(request, key)
    entry, wrong = entry_of(one)
    if entry is None:
        return shown(request, "unreadable.html", key=key, wrong=wrong)
    known = state.store.finding(key)
    history = state.store.occurrences(key, limit=200) if known else []
    shows = view(entry, str(one.path), state.repeat(str(one.path)))
    return shown(request, "finding_page.html", v=shows, key=key, known=known, history=history, statuses=STATUSES)


@router.get("/findings/{key}/study")
def study(request: Request, key: Key) -> HTMLResponse:
    """What is drawn of an entry, and its script: a part of its page, which asks for it once it is there."""
    state, one = state_of(request), book(request, key)
    entry, wrong = entry_of(one)
    if entry is None:
        raise HTTPException(404, wrong)
    repeat = state.repeat(str(one.path))
    drawn = view(entry, str(one.path), repeat, state.painter.study(one, repeat))
    return HTMLResponse(page("study.html", v=drawn))


@router.get("/corpus")
def corpus(request: Request, target: Text = "", text: Text = "") -> HTMLResponse:
    state = state_of(request)
    books = list(state.shelf.books().values())
    wanted = [one for one in books if target in ("", one.target) and text.lower() in one.key.lower()]
    rows = [(one, *read(one.path, one.changed)) for one in wanted[:500]]
    counts = Counter(one.target for one in books)
    return shown(request, "corpus.html", rows=rows, count=len(wanted), counts=counts, target=target, text=text,
                 folders=state.shelf.folders)  # fmt: skip


@lru_cache(maxsize=4096)
def read(path: Path, changed: float) -> tuple[Entry | None, str]:
    """The entry of a file as it was at that time."""
    return entry_of(IndexedEntry("", "", path, path.parent, changed))


@router.get("/help")
def reference(request: Request) -> HTMLResponse:
    """The API's methods, from the same document that programs read."""
    schema: Mapping[str, Any] = request.app.openapi()
    methods = [
        (method.upper(), path, told.get("description", told.get("summary", "")))
        for path, each in schema["paths"].items()
        for method, told in each.items()
    ]
    return shown(request, "help.html", methods=methods)
