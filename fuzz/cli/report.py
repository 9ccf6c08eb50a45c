"""Implements ``fuzz report``: findings as one self-contained HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.backends import check_name
from fuzz.cli.console import complain, errors, put
from fuzz.cli.service import URL, require_service_packages
from fuzz.cli.shared_options import EntriesTarget, PlotBackendName
from fuzz.errors import USAGE, CorpusError, one_line
from fuzz.model.entry import STATUSES
from fuzz.report.result_files import check_result_path, write_result
from fuzz.run.environment import fuzz_version
from fuzz.run.setup import choose_backend
from fuzz.web.entry_plots.client import PlotConfig, PlotRequest, run_plots
from fuzz.web.pages.render import render_report
from fuzz.web.pages.views import EntryView, ReportContent, read_coverage_file


def report(
    what: Annotated[
        str, typer.Argument(help="An entry, a folder of them, or a campaign's number or name; corpus by default.")
    ] = "corpus",
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    store: Annotated[str, typer.Option(help="Where the campaign is: sqlite:///FILE or postgresql://HOST/NAME.")] = URL,
    backend: PlotBackendName = "auto",
    target: EntriesTarget = "",
    coverage: Annotated[
        Path | None, typer.Option(help="A file that fuzz coverage --json has written, to show what was never tried.")
    ] = None,
    plots: Annotated[bool, typer.Option(help="Run the cases again for plots and scripts.")] = True,
) -> int:
    """Write findings into one HTML file with everything inside: numbers, plots, diagnosis, case, script."""
    check_result_path(out, "--out")
    check_name(backend)
    path = Path(what)
    covered = read_coverage_file(coverage) if coverage else None
    if os.path.exists(path) or "/" in what or what.endswith(".yaml") or what == "corpus":
        title = "" if os.path.isfile(path) else f"Findings in {path}"
        content = ReportContent(title, tuple(corpus.entry_files([path])))
    else:
        require_service_packages()
        from fuzz.web.pages.campaign_report import read_campaign

        content = read_campaign(what, store)
    requests, unreadable = [], list[CorpusError]()
    for path in content.paths:
        try:
            requests.append(PlotRequest(path, corpus.read(path), target))
        except CorpusError as error:
            unreadable.append(error)
    if unreadable and not requests:
        raise unreadable[0]
    for problem in unreadable:
        complain(f"skipped: {one_line(problem)}")
    config = PlotConfig(choose_backend(backend), target) if plots and requests else None
    views = make_views(requests, config)
    # One entry gives the report its own title.
    title = content.title or f"{views[0].entry.case.target}: {views[0].title}, {views[0].size}"
    facts, covered = {**content.facts, **report_facts(views)}, covered or content.coverage
    write_result(out, render_report(replace(content, title=title, facts=facts, coverage=covered), views))
    put(str(out))
    return USAGE if unreadable else 0


def make_views(requests: Sequence[PlotRequest], config: PlotConfig | None) -> list[EntryView]:
    """The view of each entry, with plots and script where there is a `config`; progress goes to standard error."""
    results = run_plots(requests, config) if config else [None] * len(requests)
    views = []
    for request, result in zip(requests, results, strict=True):
        views.append(EntryView(request.entry, str(request.path), request.target, result))
        if config:
            errors.print(f"{len(views)} of {len(requests)}: {request.path}")
    return views


def report_facts(views: Sequence[EntryView]) -> dict[str, str]:
    counts = {status: sum(view.entry.status == status for view in views) for status in STATUSES}
    return {
        "findings": ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "none",
        "targets": str(len({view.entry.case.target for view in views})),
        "written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "fuzz": fuzz_version(),
    }
