"""Implements ``fuzz sweep``: every value of a dtype in one argument of an elementwise target."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import BackendName, FailOn, FindingsFolder, Json
from fuzz.errors import UsageError
from fuzz.report.plotting.matplotlib_figure import check_plot_path, plot_title, save_figure
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, load_checked_target, writable_findings_folder
from fuzz.sweep.plan import make_plan
from fuzz.sweep.report import format_table, make_plots, sweep_json
from fuzz.sweep.runner import breaks_contract, exit_code, file_cases, file_findings, run_sweep

INTERVAL = 5.0
"""Seconds between two lines of progress."""


def sweep(
    target: Annotated[str, typer.Argument(help="An elementwise target's name, a file, or file.py:name.")],
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")],
    argument: Annotated[str, typer.Option(help="The argument to sweep; two, with a comma, for pairs.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of another argument or option; 1 by default.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Every pair of values of two arguments.")] = False,
    output: Annotated[str, typer.Option(help="The output to look at; the first by default.")] = "",
    planted: Annotated[str | None, typer.Option(help="Sweep a planted bug instead of the good kernel.")] = None,
    backend: BackendName = "auto",
    stratified: Annotated[
        int | None, typer.Option(help="So many values, every sign and exponent evenly; 0 for all there are.")
    ] = None,
    corpus: FindingsFolder = None,
    fail_on: FailOn = "medium",
    plot: Annotated[Path | None, typer.Option(help="Draw the error against the value into this file.")] = None,
    json: Json = False,
) -> int:
    """Every value of a dtype, against the correctly rounded result: a table by region, wrong signs, a plot."""
    start = time.monotonic()
    loaded = load_checked_target(target, planted, backend)
    check_plot_path(plot)
    plan = make_plan(
        loaded, target, dtype=dtype, backend=choose_backend(backend), planted=planted, swept=argument,
        settings=parse_pairs(settings or []), pairs=pairs, count=stratified, output=output,
    )  # fmt: skip
    folder = writable_findings_folder(loaded, planted, corpus)
    options = RunOptions(target, planted, backend, corpus=folder, fail_on=fail_on)
    reported = time.monotonic()
    for done, counts in enumerate(run_sweep(plan, options.worker_memory, loaded.timeout), 1):
        if time.monotonic() - reported > INTERVAL:
            reported = time.monotonic()
            errors.print(f"part {done} of {plan.requests}: {counts.count:,} values, {counts.wrong:,} wrong")
    seconds = time.monotonic() - start
    if plot:
        title = plot_title(plan.target, planted, dtype, plan.backend, plan.fixed)
        save_figure(plot, title, make_plots(plan, counts))
    if not json:
        put(format_table(plan, counts))
    result = file_findings(plan, counts, partial(file_cases, options, loaded, plan.backend, errors))
    if json:
        put_json(sweep_json(plan, counts, result, seconds))
    return exit_code(result, is_broken=breaks_contract(counts, result))


def parse_pairs(settings: list[str]) -> dict[str, str]:
    """The values of NAME=VALUE by name."""
    pairs = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--set {text}: give NAME=VALUE, such as --set dy=1")
        pairs[name.strip()] = value.strip()
    return pairs
