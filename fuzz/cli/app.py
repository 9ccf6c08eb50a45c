"""Collects the commands of the command line, in the order in which `fuzz --help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from fuzz.cli.campaign import campaign
from fuzz.cli.coverage import coverage
from fuzz.cli.drift import drift
from fuzz.cli.entries import mark, show, shrink
from fuzz.cli.inspect import doctor, list_targets, new
from fuzz.cli.judge import judge
from fuzz.cli.replay import replay
from fuzz.cli.report import report
from fuzz.cli.run import run
from fuzz.cli.serve import serve
from fuzz.cli.store import store
from fuzz.cli.sweep import sweep
from fuzz.run import environment

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Differential fuzzing of Triton kernels against float64 references.",
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if show:
        print(f"fuzz {environment.fuzz_version()}")
        raise typer.Exit(0)


app.command("list")(list_targets)
for command in (run, sweep, drift, coverage, campaign, replay, shrink, show, mark, report, serve, new, judge, doctor):
    app.command()(command)
app.add_typer(store, name="store")
