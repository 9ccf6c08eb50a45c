"""``fuzz sweep``: every value of a dtype in one argument of an elementwise target."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus as corpora
from fuzz.cli.console import errors, put, put_json
from fuzz.cli.run import checked_target, chosen_backend, default_folder
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.report.plots.figure import check_plot_path, save_figure
from fuzz.run import environment
from fuzz.run.fuzzer import Result
from fuzz.run.options import RunOptions
from fuzz.sweep import SweepCounts, SweepPlan, make_plan
from fuzz.sweep.plot import make_plots, plot_title
from fuzz.sweep.report import sweep_json, text_of
from fuzz.sweep.runner import FindingsProgress, FixedCasesFuzzer, findings, swept
from fuzz.target.spec import Target

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
    backend: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    stratified: Annotated[
        int | None, typer.Option(help="So many values, every sign and exponent evenly; 0 for all there are.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder for findings.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the error against the value into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """Every value of a dtype, against the correctly rounded result: a table by region, wrong signs, a plot."""
    began = time.monotonic()
    loaded = checked_target(target, planted, backend)
    if plot:
        check_plot_path(plot)
    plan = make_plan(
        loaded, target, dtype=dtype, backend=chosen_backend(backend), planted=planted, swept=argument,
        settings=pairs_of(settings or []), pairs=pairs, count=stratified, output=output,
    )  # fmt: skip
    folder = corpus or default_folder(loaded, planted)
    corpora.check_writable(folder)
    asked = RunOptions(target, planted, backend, corpus=folder)
    tally = swept(plan, asked.worker_memory, loaded.timeout, progress(plan))
    seconds = time.monotonic() - began
    if plot:
        save_figure(plot, plot_title(plan), make_plots(plan, tally))
    if not json:
        put(text_of(plan, tally))
    result = examined(plan, tally, asked, loaded, folder)
    if json:
        put_json(sweep_json(plan, tally, result, seconds))
    return exit_code(tally, result)


def pairs_of(settings: list[str]) -> dict[str, str]:
    """NAME=VALUE, parsed."""
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--set {text}: give NAME=VALUE, such as --set dy=1")
        found[name.strip()] = value.strip()
    return found


def progress(plan: SweepPlan) -> Callable[[SweepCounts, int], None]:
    """Tells how far the sweep is, now and then, on standard error."""
    told = time.monotonic()

    def tell(tally: SweepCounts, done: int) -> None:
        nonlocal told
        if time.monotonic() - told > INTERVAL:
            told = time.monotonic()
            text = f"part {done} of {plan.requests}: {tally.count:,} values, {tally.wrong:,} wrong"
            errors.print(text, highlight=False)

    return tell


def examined(plan: SweepPlan, tally: SweepCounts, asked: RunOptions, target: Target, folder: Path) -> Result | None:
    """The findings that the worst values end as, told on standard error as they come."""

    def campaign(cases: list[Case]) -> FixedCasesFuzzer:
        options = RunOptions(asked.target, asked.planted, asked.backend, "exhaustive", cases=len(cases), corpus=folder)
        watcher = FindingsProgress(errors, "fuzz replay")
        return FixedCasesFuzzer(options, target, plan.backend, folder, watcher, environment.versions(), cases=cases)

    return findings(plan, tally, campaign)


def exit_code(tally: SweepCounts, result: Result | None) -> int:
    """1 where the contract is broken, unless each of its findings was accepted or came out as too close to call."""
    if result and result.bugs:
        return int(any(not bug.accepted for bug in result.bugs))
    return int(bool(tally.wrong or tally.failed) and not (result and result.unconfirmed))
