"""Holds what one `fuzz serve` works with, and summarises campaigns for its pages, API, metrics and events."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

from fuzz.campaign.store import Campaign, FindingRecord, Store
from fuzz.campaign.store.rebuild import forget_deleted
from fuzz.web.campaign_processes import CampaignProcesses, file_of, is_alive, is_local
from fuzz.web.corpus_index import CorpusIndex
from fuzz.web.entry_plots.client import PlotCache
from fuzz.web.judge_queue import JudgeQueue
from fuzz.web.settings import Settings

MAX_SILENCE = 120.0
"""Seconds without a sign of life after which a campaign on another host counts as died."""
NO_TOTALS = {"targets": 0, "new": 0, "known": 0, "fixed": 0, "findings": 0, "worst": 0.0}
LATEST = 8
"""Findings that the dashboard shows."""


@dataclass(frozen=True)
class CampaignSummary:
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


class Overview:
    """What the store holds, at one version of it. `totals` are by campaign, `submissions` by state."""

    def __init__(self, store: Store, version: str) -> None:
        self.version, self.campaigns = version, store.read(Campaign)
        self.totals, self.findings = store.totals(), store.count_findings()
        self.latest = store.findings(limit=LATEST)
        self.submissions = store.count_submissions()


@dataclass
class Service:
    settings: Settings
    store: Store
    corpus_index: CorpusIndex
    plot_cache: PlotCache
    processes: CampaignProcesses
    judge_queue: JudgeQueue
    _overview: Overview | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def is_shown(self, finding: FindingRecord) -> bool:
        """Whether the entries of a finding's corpus are shown here: those of a shared store may be elsewhere."""
        return finding.corpus in {str(folder.resolve()) for folder in self.corpus_index.folders}

    def forget_deleted(self, finding: FindingRecord) -> bool:
        """Whether a finding's entry, which is not listed, was deleted, so that the store need not keep it.

        Then it does not. A folder that is not there may be on a disk that is not mounted now.
        """
        return Path(finding.corpus).is_dir() and forget_deleted(self.store, [finding]) == 1

    def overview(self) -> Overview:
        """The same for all open pages: it is read again only when the store has changed."""
        with self._lock:
            # The version comes first: what is written while the rest is read counts as a change.
            version = self.store.version()
            if self._overview is None or self._overview.version != version:
                self._overview = Overview(self.store, version)
            return self._overview

    def campaigns(self) -> list[CampaignSummary]:
        """The summary of every campaign, the newest first."""
        overview, startable = self.overview(), self.processes.startable()
        newest = {campaign.name: campaign for campaign in reversed(overview.campaigns)}
        resumable = {name: one.id for name, one in newest.items() if file_of(one, startable.get(name, []))}
        return [self._summarise(campaign, overview, resumable) for campaign in overview.campaigns]

    def summary(self, campaign: Campaign) -> CampaignSummary:
        return next(summary for summary in self.campaigns() if summary.id == campaign.id)

    def _summarise(self, campaign: Campaign, overview: Overview, resumable: dict[str, int]) -> CampaignSummary:
        """One summary. `resumable` is the newest campaign of each name whose own file is in a configured folder."""
        totals, state = NO_TOTALS | overview.totals.get(campaign.id, {}), campaign_state(campaign)
        values = vars(campaign) | totals | {
            "state": state, "worst": finite(totals["worst"]),
            "cases_per_second": campaign.cases / campaign.seconds if campaign.seconds else 0.0,
            "resumable": state in ("stopped", "died", "failed") and resumable.get(campaign.name) == campaign.id,
        }  # fmt: skip
        return CampaignSummary(**{each.name: values[each.name] for each in fields(CampaignSummary)})


def campaign_state(campaign: Campaign) -> str:
    """The state that the store holds, or `died` where a campaign that should be running is not."""
    if campaign.state != "running" or (is_local(campaign) and is_alive(campaign)):
        return campaign.state
    silent = time.time() - campaign.updated > MAX_SILENCE
    return "died" if is_local(campaign) or silent else campaign.state


def finite(value: float) -> float | None:
    """JSON has no infinities."""
    return value if math.isfinite(value) else None
