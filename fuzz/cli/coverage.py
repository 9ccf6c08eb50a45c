"""Implements ``fuzz coverage``: what a target never tried."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import complain, put, put_json
from fuzz.cli.shared_options import FindingsFolder, Json, Targets
from fuzz.cli.supervisor import first_process
from fuzz.coverage_report.file_coverage import format_files, sum_files
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
    process_start = time.monotonic() - environment.process_age(first_process())
    reports: list[CoverageReport] = []
    for number, text in enumerate(texts):
        begin = time.monotonic() if number else process_start
        report = examine(replace(options, target=text), begin)
        if report is None:
            if len(texts) > 1:
                complain(f"{text}: {NOTHING_RAN}")
            continue
        reports.append(report)
        if not json:
            put(format_report(report) if len(texts) == 1 else format_line(report))
    if not reports:
        raise UsageError(NOTHING_RAN)
    values, files = [report.as_json() for report in reports], sum_files(reports)
    if json and len(texts) == 1:
        put_json(values[0])
    elif json:
        together = [each.as_json() for each in files]
        put_json({"version": values[0]["version"], "targets": values, "files": together})
    elif len(texts) > 1:
        put(format_files(files))
    least = min(report.percent_accounted for report in reports) if len(reports) == len(texts) else 0.0
    return int(fail_under is not None and least < fail_under)


def examine(options: RunOptions, process_start: float) -> CoverageReport | None:
    """The report on one target, whose budget began at `process_start` of time.monotonic; None where no case ran."""
    # These import Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.coverage_report.assemble import make_report
    from fuzz.coverage_report.collect import collect

    loaded = load_checked_target(options.target, None, options.backend)
    folder = findings_folder(loaded, None, options.corpus)
    collected = collect(loaded, options, choose_backend(options.backend), Path(folder), process_start)
    if not collected.cases:
        return None
    return make_report(loaded, collected)
