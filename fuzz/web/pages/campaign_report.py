"""Reads from the store what a report shows of a campaign, without a service that runs."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.store import Job, Store
from fuzz.errors import UsageError
from fuzz.web import formatting
from fuzz.web.pages.render import Table

COLUMNS = ("target", "backend", "engine", "cases", "cases/s", "new", "known", "fixed", "error/bound", "visited")
NUMERIC = frozenset(range(3, len(COLUMNS)))


def read_campaign(name: str, url: str) -> tuple[str, tuple[Path, ...], dict[str, str], tuple[Table, ...]]:
    """(title, entries, facts, tables) of the campaign of a number, or the newest of a name. UsageError where none."""
    with Store(url) as store:
        campaign = store.campaign(int(name)) if name.isdecimal() and len(name) < 10 else None
        campaign = campaign or next(iter(store.campaigns(name=name)), None)
        if campaign is None:
            raise UsageError(f"{name} is neither a file, a folder nor a campaign in {store.name}")
        paths = [Path(finding.corpus) / finding.path for finding in store.findings(campaign=campaign.id, limit=10_000)]
        rows = tuple(map(format_row, store.jobs(campaign.id)))
    facts = {
        "state": campaign.state,
        "cases": formatting.count(campaign.cases),
        "fuzzed": formatting.duration(campaign.seconds),
        "begun": f"{formatting.timestamp(campaign.created)} UTC",
        "host": campaign.host,
    }
    existing = tuple(path for path in paths if path.is_file())
    title = f"Campaign {campaign.name} #{campaign.id}"
    return title, existing, facts, (Table("Targets", COLUMNS, rows, NUMERIC),)


def format_row(job: Job) -> tuple[str, ...]:
    name = job.target + (f" with {job.planted}" if job.planted else "")
    counts = (str(job.new), str(job.known), str(job.fixed))
    rest = (formatting.ratio(job.worst), formatting.percent(job.share))
    return name, job.backend, job.engine, formatting.count(job.cases), formatting.rate(job.rate), *counts, *rest
