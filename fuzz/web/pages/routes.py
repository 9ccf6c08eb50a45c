"""Serves the pages, made on the server from templates that escape every text."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fuzz.campaign.store import Coverage, FindingRecord, Heartbeat, Occurrence
from fuzz.model.entry import STATUSES
from fuzz.model.finding import VERDICTS
from fuzz.model.grade import SEVERITIES
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.web import api, formatting
from fuzz.web.api import Offset, TheCampaign, TheEntry, TheService
from fuzz.web.corpus_index import IndexedEntry
from fuzz.web.judge_api import SubmissionId, describe, find_submission, require_judging, submissions
from fuzz.web.models import Filters, FindingKey, Text
from fuzz.web.pages.campaign_report import plot_trends, view_coverages
from fuzz.web.pages.render import render
from fuzz.web.pages.views import EntryView

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
judge_router = APIRouter(
    prefix="/judgements", include_in_schema=False, default_response_class=HTMLResponse,
    dependencies=[Depends(require_judging)],
)  # fmt: skip
MAX_ROWS, PAGE = 500, 100
"""Entries that are listed; judgements, and findings of a campaign, on one page."""


def html_page(request: Request, name: str, **values: Any) -> HTMLResponse:
    """A whole page."""
    settings = api.get_service(request).settings
    common = {"fmt": formatting, "here": request.url.path, "logged_in": bool(settings.token), "judges": settings.judge}
    return HTMLResponse(render(name, **common, **values))


@router.get("/")
def dashboard(request: Request, service: TheService) -> HTMLResponse:
    processes = service.processes
    return html_page(
        request, "dashboard.html", campaigns=service.campaigns(), configs=processes.by_length(),
        running_configs=processes.running(), error_logs=processes.error_logs(), findings=service.overview().latest,
        open=service.store.count_findings(status="open"), entries=len(service.corpus_index.entries()),
    )  # fmt: skip


@router.get("/campaigns/{number}")
def campaign(request: Request, service: TheService, campaign: TheCampaign) -> HTMLResponse:
    store = service.store
    return html_page(
        request, "campaign.html", campaign=service.summary(campaign), config=campaign.config,
        jobs=api.list_jobs(service, campaign), workers=store.read(Heartbeat, campaign=campaign.id),
        plots=plot_trends(store.sample_statistics(campaign.id)),
        findings=store.findings(campaign=campaign.id, limit=PAGE), found=store.count_findings(campaign=campaign.id),
        coverage=view_coverages(store.read(Coverage, campaign=campaign.id)),
    )  # fmt: skip


@router.get("/findings")
def findings(request: Request, service: TheService, filters: Annotated[Filters, Query()]) -> HTMLResponse:
    every = service.store.findings(limit=10_000)
    choices = {
        "target": sorted({finding.target for finding in every}),
        "oracle": [name for name in ORACLE_NAMES if any(finding.oracle == name for finding in every)],
        "severity": list(reversed(SEVERITIES)),
        "verdict": list(VERDICTS),
        "status": list(STATUSES),
        "planted": sorted({finding.planted for finding in every if finding.planted}),
    }
    page, after = api.findings(service, filters), filters.offset + filters.limit
    return html_page(
        request, "findings.html", page=page, filters=filters, choices=choices,
        older=query_string(filters, after) if after < page.count else "",
        newer=query_string(filters, max(filters.offset - filters.limit, 0)) if filters.offset else "",
    )  # fmt: skip


def query_string(filters: Filters, offset: int) -> str:
    """The same filters on another page."""
    given = filters.model_dump(exclude_defaults=True) | {"offset": offset}
    return "?" + urlencode({name: value for name, value in given.items() if value not in (None, "")})


@router.get("/findings/{key}")
def finding(request: Request, service: TheService, key: FindingKey, indexed: TheEntry) -> Response:
    if indexed.key != key:
        return redirect_to(indexed, "")
    entry, error = indexed.read()
    if entry is None:
        return html_page(request, "unreadable.html", key=indexed.key, error=error)
    stored = service.store.find(FindingRecord, indexed.key)
    history = service.store.read(Occurrence, finding=indexed.key, limit=200) if stored else []
    view = EntryView(entry, str(indexed.path), service.plot_cache.config.target_argument(entry, indexed.path))
    return html_page(
        request, "finding_page.html", v=view, key=indexed.key, stored=stored, history=history, statuses=STATUSES
    )


@router.get("/findings/{key}/study")
def plots_and_script(service: TheService, key: FindingKey, indexed: TheEntry) -> Response:
    """The plots and the script of an entry: a part of its page, which loads it afterwards."""
    if indexed.key != key:
        return redirect_to(indexed, "/study")
    entry, error = indexed.read()
    if entry is None:
        raise HTTPException(404, error)
    result, seconds = service.plot_cache.plot(indexed)
    return HTMLResponse(render("plots_and_script.html", result=result, retry_seconds=math.ceil(seconds)))


def redirect_to(indexed: IndexedEntry, part: str) -> Response:
    """Leads from the key of an entry that a smaller one has replaced to that one."""
    return RedirectResponse(f"/findings/{quote(indexed.key, safe='')}{part}", status_code=303)


@router.get("/corpus")
def corpus(request: Request, service: TheService, target: Text = "", text: Text = "") -> HTMLResponse:
    entries = service.corpus_index.entries().values()
    selected = [
        indexed for indexed in entries if target in ("", indexed.target) and text.lower() in indexed.key.lower()
    ]
    rows = [(indexed, *indexed.read()) for indexed in selected[:MAX_ROWS]]
    counts = Counter(indexed.target for indexed in entries)
    return html_page(request, "corpus.html", rows=rows, count=len(selected), counts=counts, target=target, text=text,
                     folders=service.corpus_index.folders)  # fmt: skip


@router.get("/help")
def api_help(request: Request) -> HTMLResponse:
    """The API's methods, from the same document that programs read."""
    methods = [
        (method.upper(), path, operation.get("description", operation.get("summary", "")))
        for path, operations in request.app.openapi()["paths"].items()
        for method, operation in operations.items()
    ]
    return html_page(request, "help.html", methods=methods)


@judge_router.get("")
def list_judgements(request: Request, service: TheService, offset: Offset = 0) -> HTMLResponse:
    page = submissions(service, "", PAGE, offset)
    older = offset + PAGE if offset + PAGE < sum(page.counts.values()) else 0
    return html_page(request, "judgements.html", page=page, offset=offset, older=older, newer=max(offset - PAGE, 0))


@judge_router.get("/{key}")
def show_judgement(request: Request, service: TheService, key: SubmissionId) -> HTMLResponse:
    stored = find_submission(service, key)
    return html_page(
        request, "judgement.html", s=describe(stored), problem=json.loads(stored.problem), solution=stored.solution
    )
