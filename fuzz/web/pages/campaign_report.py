"""Reads from the store what a report or page shows of a campaign: its findings, its coverage, and both over time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from fuzz.campaign.store import Campaign, Coverage, Job, Statistic, Store
from fuzz.campaign.store.schema import display_url, parse_url
from fuzz.coverage_report.report import CoverageReport, Ran, read_blockers
from fuzz.errors import UsageError
from fuzz.report.plotting.plot_data import Line, Linear, Plot, Point
from fuzz.web import formatting
from fuzz.web.pages.views import CoverageView, ReportContent

HOUR = 3600.0
MAX_POINTS = 480


def check_exists(url: str) -> None:
    """UsageError where a store is a file that does not exist: to open it would make it."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database and not Path(parsed.database).exists():
        raise UsageError(f"store {display_url(parsed)} does not exist; --store names the one that the campaign is in")


def read_campaign(name: str, url: str) -> ReportContent:
    """What a report shows of the campaign of a number, or the newest of a name. UsageError where there is none."""
    check_exists(url)
    with Store(url) as store:
        campaign = store.find(Campaign, int(name)) if name.isdecimal() and len(name) < 10 else None
        campaign = campaign or next(iter(store.read(Campaign, name=name)), None)
        if campaign is None:
            raise UsageError(f"{name} is neither a file, a folder nor a campaign in {store.name}")
        paths = [Path(finding.corpus) / finding.path for finding in store.findings(campaign=campaign.id, limit=10_000)]
        jobs = store.read(Job, campaign=campaign.id)
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


def plot_trends(statistics: Sequence[Statistic]) -> list[Plot]:
    """Cases and findings against time; none before there are two moments."""
    series = [(sum_over_jobs(statistics, name), name) for name in ("cases", "findings")]
    return [plot_trend(points, name) for points, name in series if len({x for x, _ in points}) > 1]


def plot_coverage_trends(coverages: Sequence[Coverage]) -> list[Plot]:
    """Lines and branches that ran and masks that were partly on, in percent of all, against time."""
    found = []
    for name in ("lines", "branches", "masks"):
        run, every = (sum_over_jobs(coverages, f"{name}_{part}") for part in ("run", "all"))
        points = [
            (wall, 100 * some / most if most else 100.0) for (wall, some), (_, most) in zip(run, every, strict=True)
        ]
        if len({x for x, _ in points}) > 1:
            found.append(plot_trend(points, f"{name}, %"))
    return found


def sum_over_jobs(statistics: Iterable[Statistic | Coverage], name: str) -> list[Point]:
    """(wall time, sum over all jobs of their latest value) after each statistic; a clock set back stands still."""
    latest: dict[tuple[str | int, ...], float] = {}
    points: list[Point] = []
    for statistic in statistics:
        latest[statistic.job] = float(getattr(statistic, name))
        points.append((max(statistic.wall, points[-1][0]) if points else statistic.wall, sum(latest.values())))
    return points


def plot_trend(points: list[Point], name: str) -> Plot:
    start = points[0][0]
    hours = points[-1][0] - start > 2 * HOUR
    unit = HOUR if hours else 60.0
    x = Linear(0.0, (points[-1][0] - start) / unit)
    y = Linear(0.0, max(value for _, value in points) * 1.05 or 1.0)
    shares = [(x.position((wall - start) / unit), y.position(value)) for wall, value in thin(points)]
    # What is counted stays until the next count.
    steps = [(after, before) for (_, before), (after, _) in zip(shares, shares[1:], strict=False)]
    line = [shares[0], *(point for pair in zip(steps, shares[1:], strict=True) for point in pair)]
    return Plot(
        name, f"since {formatting.timestamp(start)} UTC", "hours" if hours else "minutes", name, x.ticks,
        tuple(tick for tick in y.ticks if "." not in tick[1]), lines=(Line("bound", tuple(line), filled=True),),
    )  # fmt: skip


def thin(points: list[Point]) -> list[Point]:
    """At most about one point a pixel, the first and the last one always."""
    step = max(1, len(points) // MAX_POINTS)
    return [*points[:-1:step], points[-1]]
