"""Summary: a campaign from the store as a report tells it, without a service that runs."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.store import Campaign, Job, Store
from fuzz.errors import UsageError
from fuzz.web import formatting
from fuzz.web.pages.render import Table

COLUMNS = ("target", "backend", "engine", "cases", "cases/s", "new", "known", "fixed", "error/bound", "visited")
NUMERIC = frozenset(range(3, len(COLUMNS)))


def summary(what: str, url: str) -> tuple[str, tuple[Path, ...], dict[str, str], tuple[Table, ...]]:
    """(title, entries, facts, tables) of the campaign of a number, or the newest of a name. UsageError where none."""
    with Store(url) as store:
        found = store.campaign(int(what)) if what.isdecimal() and len(what) < 10 else None
        found = found or next(iter(store.campaigns(name=what)), None)
        if found is None:
            raise UsageError(f"{what} is neither a file, a folder nor a campaign in {store.name}")
        paths = (Path(one.corpus) / one.path for one in store.findings(campaign=found.id, limit=10_000))
        lanes = store.jobs(found.id)
    there = tuple(path for path in paths if path.is_file())
    return f"Campaign {found.name} #{found.id}", there, facts(found), (table(lanes),)


def facts(campaign: Campaign) -> dict[str, str]:
    return {
        "state": campaign.state,
        "cases": formatting.count(campaign.cases),
        "fuzzed": formatting.lasting(campaign.seconds),
        "begun": f"{formatting.stamp(campaign.created)} UTC",
        "host": campaign.host,
    }


def table(lanes: list[Job]) -> Table:
    return Table("Targets", COLUMNS, tuple(map(row, lanes)), NUMERIC)


def row(lane: Job) -> tuple[str, ...]:
    name = lane.target + (f" with {lane.planted}" if lane.planted else "")
    counts = (str(lane.new), str(lane.known), str(lane.fixed))
    rest = (formatting.ratio(lane.worst), formatting.percent(lane.share))
    return name, lane.backend, lane.engine, formatting.count(lane.cases), formatting.rate(lane.rate), *counts, *rest
