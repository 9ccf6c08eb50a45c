"""Implements ``fuzz coverage``: what a target never tried."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import put, put_json
from fuzz.cli.shared_options import FindingsFolder, Json
from fuzz.errors import UsageError
from fuzz.run import environment
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, findings_folder, load_checked_target


def coverage(
    target: Annotated[str, typer.Argument(help="A built-in target, liger/softmax, a file, or file.py:name.")],
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
    # These import Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.coverage_report.collect import collect
    from fuzz.coverage_report.report import format_report, make_report

    if fail_under is not None and not 0 <= fail_under <= 100:
        raise UsageError(f"--fail-under is a percentage from 0 to 100, not {fail_under:g}")
    options = RunOptions(target, backend="cpu", seed=seed, seconds=seconds, cases=cases, corpus=corpus)
    loaded = load_checked_target(target, None, options.backend)
    folder = findings_folder(loaded, None, corpus)
    process_start = time.monotonic() - environment.process_age()
    collected = collect(loaded, options, choose_backend(options.backend), Path(folder), process_start)
    report = make_report(loaded, collected)
    if json:
        put_json(report.as_json())
    else:
        put(format_report(report))
    return int(fail_under is not None and report.percent_accounted < fail_under)
