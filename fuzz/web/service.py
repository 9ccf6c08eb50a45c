"""Service: what the service works with, and what it reads from the store for pages, API, metrics and events."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from fuzz.campaign.store import Campaign, Finding, Job, Store
from fuzz.web.campaign_processes import CampaignProcesses, alive, here
from fuzz.web.corpus_index import CorpusIndex
from fuzz.web.plots.cache import PlotCache
from fuzz.web.settings import Settings

SILENT = 120.0
"""Seconds without a sign of life after which a campaign elsewhere counts as died."""


@dataclass(frozen=True)
class Summary:
    """One campaign as it is shown. `state` is the store's, or `died` where its process is gone.

    `worst` is the largest error over bound of a case that agrees; `fixed` counts former findings that no longer fail.
    """

    id: int
    name: str
    state: str
    seconds: float
    cases: int
    cases_per_second: float
    targets: int
    new: int
    known: int
    fixed: int
    findings: int
    worst: float | None
    created: float
    updated: float
    corpus: str
    host: str
    note: str
    resumable: bool


@dataclass(frozen=True)
class Service:
    settings: Settings
    store: Store
    shelf: CorpusIndex
    painter: PlotCache
    runner: CampaignProcesses

    def campaigns(self) -> list[Summary]:
        return [self.summary(one) for one in self.store.campaigns()]

    def campaign(self, number: int) -> Campaign | None:
        return self.store.campaign(number)

    def summary(self, campaign: Campaign) -> Summary:
        lanes = self.store.jobs(campaign.id)
        state = self.state_of(campaign)
        return Summary(
            campaign.id, campaign.name, state, campaign.seconds, campaign.cases,
            campaign.cases / campaign.seconds if campaign.seconds else 0.0, len({lane.target for lane in lanes}),
            sum(lane.new for lane in lanes), sum(lane.known for lane in lanes), sum(lane.fixed for lane in lanes),
            self.store.count_findings(campaign=campaign.id), worst_of(lanes), campaign.created, campaign.updated,
            campaign.corpus, campaign.host, campaign.note,
            state in ("stopped", "died", "failed") and self.resumable(campaign),
        )  # fmt: skip

    def resumable(self, campaign: Campaign) -> bool:
        """Whether `--resume` goes on with it: the newest of its name, whose file is in a configured folder."""
        newest = self.store.campaigns(name=campaign.name)
        return bool(newest) and newest[0].id == campaign.id and self.runner.named(campaign.name) is not None

    def state_of(self, campaign: Campaign) -> str:
        if campaign.state != "running" or (here(campaign) and alive(campaign)):
            return campaign.state
        silent = time.time() - campaign.updated > SILENT
        return "died" if here(campaign) or silent else campaign.state

    def recent(self, limit: int = 8) -> list[Finding]:
        return self.store.findings(limit=limit)

    def repeat(self, path: str) -> str:
        return f"fuzz replay {path}"


def worst_of(lanes: list[Job]) -> float | None:
    return finite(max((lane.worst for lane in lanes), default=0.0))


def finite(value: float) -> float | None:
    """JSON has no infinities."""
    return value if math.isfinite(value) else None
