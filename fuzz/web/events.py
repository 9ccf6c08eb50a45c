"""Events: server-sent events that tell open pages when something changed, so that they ask for it."""

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
QUIET = 15
"""Looks without a change after which a comment keeps the connection open."""


def snapshot(state: Service) -> dict[str, Any]:
    """What pages show, in short: campaigns, and the newest findings by key."""
    campaigns = [asdict(one) for one in state.campaigns()[:50]]
    latest = [[one.id, one.target, one.hits] for one in state.recent()]
    return {"campaigns": campaigns, "findings": state.store.count_findings(), "latest": latest,
            "working": state.runner.working(), "last_words": sorted(state.runner.last_words())}  # fmt: skip


async def stream(request: Request, state: Service) -> AsyncIterator[str]:
    """One event `change` at the beginning and after each change, until the reader goes away or the service ends."""
    told, quiet = "", 0
    yield "retry: 2000\n\n"
    while not (await request.is_disconnected() or request.app.state.ending.is_set()):
        try:
            text = json.dumps(await run_in_threadpool(snapshot, state))
        except StoreError as error:
            text = json.dumps({"error": str(error)})
        quiet += 1
        if text != told:
            told, quiet = text, 0
            yield f"event: change\ndata: {text}\n\n"
        elif quiet % QUIET == 0:
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL)
