"""Sends server-sent events to open pages when something changed, so that they load it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from fuzz.errors import StoreError
from fuzz.web.service import Service

INTERVAL = 1.0
"""Seconds between two looks at the store."""
MAX_STREAMS = 100
"""Pages that are kept up to date at once."""
KEEPALIVE = 15
"""Looks without a change after which a comment keeps the connection open."""


def snapshot(service: Service) -> dict[str, Any]:
    """What pages show, in short: campaigns, the newest findings by key, and how many submissions are in which state."""
    overview, processes = service.overview(), service.processes
    campaigns = [asdict(campaign) for campaign in service.campaigns()[:50]]
    latest = [[finding.id, finding.target, finding.hits] for finding in overview.latest]
    return {"campaigns": campaigns, "findings": overview.findings, "latest": latest,
            "submissions": overview.submissions, "working": processes.running(),
            "last_words": sorted(processes.error_logs())}  # fmt: skip


async def stream(request: Request, service: Service) -> AsyncIterator[str]:
    """One event `change` at the beginning and after each change, until the reader goes away or the service ends.

    Comments keep it open while nothing changes.
    """
    state, sent, unchanged = request.app.state, "", 0
    state.streams += 1
    try:
        yield "retry: 2000\n\n"
        while not (await request.is_disconnected() or state.ending.is_set()):
            try:
                data = json.dumps(await run_in_threadpool(snapshot, service))
            except StoreError as error:
                data = json.dumps({"error": str(error)})
            unchanged += 1
            if data != sent:
                sent, unchanged = data, 0
                yield f"event: change\ndata: {data}\n\n"
            elif unchanged % KEEPALIVE == 0:
                yield ": still here\n\n"
            await asyncio.sleep(INTERVAL)
    finally:
        state.streams -= 1
