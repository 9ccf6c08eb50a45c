"""Reads from the store what a report or page shows of a campaign, without a service that runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fuzz.campaign.store import Campaign, Coverage, Store
from fuzz.coverage_report.report import CoverageReport, Ran, read_blockers
from fuzz.errors import UsageError
from fuzz.web import formatting
from fuzz.web.pages.views import CoverageView, ReportContent
from fuzz.web.plots.trend_plots import plot_coverage_trends


def read_campaign(name: str, url: str) -> ReportContent:
    """What a report shows of the campaign of a number, or the newest of a name. UsageError where there is none."""
    with Store(url) as store:
        campaign = store.find(Campaign, int(name)) if name.isdecimal() and len(name) < 10 else None
        campaign = campaign or next(iter(store.campaigns(name=name)), None)
        if campaign is None:
            raise UsageError(f"{name} is neither a file, a folder nor a campaign in {store.name}")
        paths = [Path(finding.corpus) / finding.path for finding in store.findings(campaign=campaign.id, limit=10_000)]
        jobs = store.jobs(campaign.id)
        coverage = view_coverages(store.read(Coverage, campaign=campaign.id))
    facts = {
        "state": campaign.state,
        "cases": formatting.count(campaign.cases),
        "fuzzed": formatting.duration(campaign.seconds),
        "begun": f"{formatting.timestamp(campaign.created)} UTC",
        "host": campaign.host,
    }
    existing = tuple(path for path in paths if path.is_file())
    title = f"Campaign {campaign.name} #{campaign.id}"
    return ReportContent(title, existing, facts, jobs, coverage)


def view_coverages(coverages: Sequence[Coverage]) -> CoverageView | None:
    """The last coverage of each target of a campaign, with trends; None where none was measured."""
    latest = {coverage.target: coverage for coverage in coverages}
    if not latest:
        return None
    return CoverageView(tuple(map(describe, latest.values())), tuple(plot_coverage_trends(coverages)))


def describe(coverage: Coverage) -> CoverageReport:
    """The report that a record of the store holds; without blockers where these are damaged."""
    try:
        blockers = read_blockers(json.loads(coverage.blockers))
    except (ValueError, TypeError, KeyError):
        blockers = ()
    return CoverageReport(
        coverage.target, coverage.cases, coverage.rejected, 0, Ran(coverage.lines_run, coverage.lines_all),
        Ran(coverage.branches_run, coverage.branches_all), Ran(coverage.masks_run, coverage.masks_all), blockers,
    )  # fmt: skip
