"""Serves the pages of judgements: the list, and one with what it rests on."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from fuzz.web.api import TheService
from fuzz.web.judge_api import SubmissionId, describe, find_submission, require_judging, submissions
from fuzz.web.pages.routes import html_page

PAGE = 100
router = APIRouter(
    prefix="/judgements", include_in_schema=False, default_response_class=HTMLResponse,
    dependencies=[Depends(require_judging)],
)  # fmt: skip


@router.get("")
def list_judgements(
    request: Request, service: TheService, offset: Annotated[int, Query(ge=0, le=10**9)] = 0
) -> HTMLResponse:
    page = submissions(service, "", PAGE, offset)
    older = offset + PAGE if offset + PAGE < sum(page.counts.values()) else 0
    return html_page(request, "judgements.html", page=page, offset=offset, older=older, newer=max(offset - PAGE, 0))


@router.get("/{key}")
def show_judgement(request: Request, service: TheService, key: SubmissionId) -> HTMLResponse:
    stored = find_submission(service, key)
    return html_page(
        request, "judgement.html", s=describe(stored), problem=json.loads(stored.problem), solution=stored.solution
    )
