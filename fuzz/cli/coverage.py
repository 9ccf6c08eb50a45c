"""Implements ``fuzz coverage``: what a target never tried."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import put, put_json
from fuzz.cli.shared_options import FindingsFolder, Json, Targets
from fuzz.coverage_report.report import CoverageReport, format_line, format_report
from fuzz.errors import UsageError
from fuzz.run import environment
from fuzz.run.options import RunOptions
from fuzz.run.result import NOTHING_RAN
from fuzz.run.setup import choose_backend, findings_folder, load_checked_target
from fuzz.target.finder import find_targets


def coverage(
    target: Targets,
    seconds: Annotated[float | None, typer.Option(help="Run cases for so long; 60 where no budget is given.")] = None,
    cases: Annotated[int | None, typer.Option(help="Run so many cases.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed, target and number of cases give the same report.")] = 0,
    fail_under: Annotated[
        float | None,
        typer.Option(help="Exit with 1 where less than so many percent of the lines ran or have a reason."),
    ] = None,
    corpus: FindingsFolder = None,
    json: Json = False,
) -> int:
    """What a target never tried: code, values of parameters, dtypes, layouts, each with what would reach it."""
    if fail_under is not None and not 0 <= fail_under <= 100:
        raise UsageError(f"--fail-under is a percentage from 0 to 100, not {fail_under:g}")
    options = RunOptions(target, backend="cpu", seed=seed, seconds=seconds, cases=cases, corpus=corpus)
    texts = find_targets(target)
    process_start = time.monotonic() - environment.process_age()
    reports: list[CoverageReport] = []
    for text in texts:
        begin = time.monotonic() if reports else process_start
        reports.append(examine(replace(options, target=text), begin))
        if not json:
            put(format_report(reports[-1]) if len(texts) == 1 else format_line(reports[-1]))
    if json:
        values = [report.as_json() for report in reports]
        put_json(values[0] if len(values) == 1 else {"version": values[0]["version"], "targets": values})
    return int(fail_under is not None and any(report.percent_accounted < fail_under for report in reports))


def examine(options: RunOptions, process_start: float) -> CoverageReport:
    """The report on one target; its budget of time began at `process_start`, by time.monotonic."""
    # These import Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.coverage_report.assemble import make_report
    from fuzz.coverage_report.collect import collect

    loaded = load_checked_target(options.target, None, options.backend)
    folder = findings_folder(loaded, None, options.corpus)
    collected = collect(loaded, options, choose_backend(options.backend), Path(folder), process_start)
    if not collected.cases:
        raise UsageError(NOTHING_RAN)
    return make_report(loaded, collected)
