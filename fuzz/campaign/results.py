"""Table: what a campaign came to, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from fuzz.campaign.state import Ledger, tag
from fuzz.campaign.store import Job

VERSION = 1
COLUMNS = ("target", "cases", "cases/s", "new", "known", "fixed", "error/bound", "visited")


def grouped(lanes: Sequence[Job]) -> dict[tuple[str, str, str, str], list[Job]]:
    """Lanes that differ in their seed only, together."""
    found: dict[tuple[str, str, str, str], list[Job]] = {}
    for lane in lanes:
        found.setdefault((lane.target, lane.planted, lane.backend, lane.engine), []).append(lane)
    return found


def rows(ledger: Ledger) -> list[dict[str, Any]]:
    """One value for each target, backend and engine. `visited` is the share of cells, None where nothing ran."""
    return [_row(ledger, lanes) for lanes in grouped(ledger.lanes).values()]


def _row(ledger: Ledger, lanes: list[Job]) -> dict[str, Any]:
    first, tags = lanes[0], {tag(lane) for lane in lanes}
    cases, seconds = sum(lane.cases for lane in lanes), sum(lane.seconds for lane in lanes)
    cells, possible = {cell for lane in lanes for cell in lane.cells}, max(lane.possible for lane in lanes)
    counts = {
        name: sum(place in tags for place in found.values())
        for name, found in (("new", ledger.new), ("known", ledger.known), ("fixed", ledger.fixed))
    }
    return {
        "target": first.target,
        "planted": first.planted or None,
        "backend": first.backend,
        "engine": first.engine,
        "seeds": [lane.seed for lane in lanes],
        "cases": cases,
        "rejected": sum(lane.rejected for lane in lanes),
        "cases_per_second": round(cases / seconds, 1) if seconds else 0.0,
        **counts,
        "worst_ratio": max(lane.worst for lane in lanes),
        "visited": round(len(cells) / possible, 4) if possible else None,
        "deaths": sum(lane.deaths for lane in lanes),
        "note": next((lane.note for lane in lanes if lane.note), ""),
    }


def table(ledger: Ledger) -> Table:
    """The table at the end of a campaign."""
    made = Table(box=None, padding=(0, 1), header_style="")
    for column in COLUMNS:
        made.add_column(column, justify="left" if column == "target" else "right", overflow="fold")
    for row in rows(ledger):
        name = row["target"].rpartition("/" if ".py:" in row["target"] else "\0")[2] + (
            f"+{row['planted']}" if row["planted"] else ""
        )
        extra = [part for part in (row["backend"], row["engine"]) if part != "auto"]
        visited = "-" if row["visited"] is None else f"{row['visited']:.0%}"
        counts = [str(row[key]) for key in ("new", "known", "fixed")]
        made.add_row(
            " ".join([name, *extra]), str(row["cases"]), f"{row['cases_per_second']:.0f}", *counts,
            f"{row['worst_ratio']:.3f}", visited,
        )  # fmt: skip
    return made


def value(ledger: Ledger, state: str) -> dict[str, Any]:
    """The value that ``fuzz campaign --json`` prints."""
    campaign = ledger.campaign
    found = {finding.id: finding for finding in ledger.store.findings(campaign=campaign.id, limit=1 << 31)}
    return {
        "version": VERSION,
        "campaign": campaign.id,
        "name": campaign.name,
        "state": state,
        "seconds": round(campaign.seconds, 3),
        "cases": ledger.cases,
        "targets": rows(ledger),
        "findings": [
            {**vars(found[name]), "dims": dict(found[name].dims), "seen": "new" if name in ledger.new else "known"}
            for name in (*ledger.new, *ledger.known)
            if name in found
        ],
        "fixed": sorted(ledger.fixed),
        "again": sorted(ledger.again),
    }
