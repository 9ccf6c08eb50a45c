"""Sums up what a campaign found, as a table for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from fuzz.campaign.state import CampaignState, tag
from fuzz.campaign.store import FindingRecord, Job
from fuzz.campaign.store.rebuild import entry_status
from fuzz.model.grade import SEVERITIES, UNGRADED

VERSION = 1
COLUMNS = ("target", "cases", "cases/s", "new", "known", "fixed", "severity", "error/bound", "visited")


def job_rows(state: CampaignState) -> list[dict[str, Any]]:
    """One value for each target, backend and engine, all seeds together."""
    groups: dict[tuple[str, str, str, str], list[Job]] = {}
    for job in state.jobs:
        groups.setdefault((job.target, job.planted, job.backend, job.engine), []).append(job)
    saved = {name: state.store.find_finding(name) for name in (*state.new, *state.known)}
    severities = {name: finding.severity or UNGRADED for name, finding in saved.items() if finding}
    return [_job_row(state, jobs, severities) for jobs in groups.values()]


def _job_row(state: CampaignState, jobs: Sequence[Job], severities: Mapping[str, str]) -> dict[str, Any]:
    """`visited` is the share of cells, None where nothing ran; `severities` are by finding."""
    first, tags = jobs[0], {tag(job) for job in jobs}
    cases, seconds = sum(job.cases for job in jobs), sum(job.seconds for job in jobs)
    cells, possible = {cell for job in jobs for cell in job.cells}, max(job.possible for job in jobs)
    counts = {
        name: sum(mark in tags for mark in marks.values())
        for name, marks in (("new", state.new), ("known", state.known), ("fixed", state.fixed))
    }
    found = Counter(severities.get(name) for marks in (state.new, state.known) for name in marks if marks[name] in tags)
    return {
        "target": first.target,
        "planted": first.planted or None,
        "backend": first.backend,
        "engine": first.engine,
        "seeds": [job.seed for job in jobs],
        "cases": cases,
        "rejected": sum(job.rejected for job in jobs),
        "cases_per_second": round(cases / seconds, 1) if seconds else 0.0,
        **counts,
        "severities": {name: found[name] for name in reversed(SEVERITIES)},
        "worst_ratio": max(job.worst for job in jobs),
        "visited": round(len(cells) / possible, 4) if possible else None,
        "deaths": sum(job.deaths for job in jobs),
        "note": next((job.note for job in jobs if job.note), ""),
    }


def make_table(state: CampaignState) -> Table:
    """The table at the end of a campaign."""
    result = Table(box=None, padding=(0, 1), header_style="")
    for column in COLUMNS:
        result.add_column(column, justify="left" if column == "target" else "right", overflow="fold")
    for row in job_rows(state):
        name = row["target"].rpartition("/" if ".py:" in row["target"] else "\0")[2]
        name += f"+{row['planted']}" if row["planted"] else ""
        choices = [part for part in (row["backend"], row["engine"]) if part != "auto"]
        visited = "-" if row["visited"] is None else f"{row['visited']:.0%}"
        counts = [str(row[key]) for key in ("new", "known", "fixed")]
        severity = ", ".join(f"{count} {name}" for name, count in row["severities"].items() if count)
        rate, worst = f"{row['cases_per_second']:.0f}", f"{row['worst_ratio']:.3f}"
        result.add_row(" ".join([name, *choices]), str(row["cases"]), rate, *counts, severity, worst, visited)
    return result


def campaign_json(state: CampaignState, outcome: str) -> dict[str, Any]:
    """The value that ``fuzz campaign --json`` prints."""
    campaign = state.campaign
    findings: dict[str, tuple[FindingRecord, str]] = {}
    # What is marked fixed and disagrees again may not have been hit. Other campaigns may have merged two findings.
    for name in (*state.new, *state.known, *state.regressed):
        if found := state.store.find_finding(name):
            findings.setdefault(found.id, (found, "new" if name in state.new else "known"))
    return {
        "version": VERSION,
        "campaign": campaign.id,
        "name": campaign.name,
        "state": outcome,
        "seconds": round(campaign.seconds, 3),
        "cases": state.cases,
        "targets": job_rows(state),
        "findings": [
            {**asdict(finding), "status": entry_status(finding), "seen": seen} for finding, seen in findings.values()
        ],
        "fixed": sorted(state.fixed),
        "again": sorted(state.regressed),
    }
