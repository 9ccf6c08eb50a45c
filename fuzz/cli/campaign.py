"""``fuzz campaign``: many targets, many workers, days."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import errors, put_json
from fuzz.cli.store import needs_service
from fuzz.cli.version import number
from fuzz.report.files import check, write
from fuzz.report.items import item
from fuzz.report.junit import junit as as_junit
from fuzz.report.sarif import sarif as as_sarif
from fuzz.run.replay import target_of

if TYPE_CHECKING:
    from fuzz.campaign.state import CampaignState


def campaign(
    config: Annotated[Path, typer.Argument(help="A YAML file; docs/campaigns.md describes its keys.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last campaign of this name.")] = False,
    only_new: Annotated[bool, typer.Option("--only-new", help="Exit with 1 only for findings not yet saved.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write findings as JUnit XML into this file.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write findings as SARIF 2.1.0 into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """Fuzz many targets with many workers until a budget ends; the same command with --resume goes on."""
    needs_service()
    check(junit, "--junit")
    check(sarif, "--sarif")
    from fuzz.campaign.config import load_config
    from fuzz.campaign.launch import run_campaign
    from fuzz.campaign.results import json_value, table

    # What stops services ends a campaign as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state, outcome = run_campaign(load_config(config), resume=resume, say=say)
    with state.store:
        write_reports(state, only_new, junit, sarif)
        if json:
            put_json(json_value(state, outcome))
        else:
            errors.print(table(state))
            say(f"{outcome}; findings {len(state.new)} new, {len(state.known)} known, {len(state.fixed)} fixed")
    known = {*state.known, *state.regressed} - state.accepted
    return int(bool(state.new) or bool(known) and not only_new)


def write_reports(state: CampaignState, only_new: bool, junit: Path | None, sarif: Path | None) -> None:
    """Writes the files for continuous integration: those findings fail that the exit code counts."""
    if not (junit or sarif):
        return
    known = dict.fromkeys((*state.regressed, *state.known), "known")
    items = []
    for name, kind in {**known, **dict.fromkeys(state.new, "new")}.items():
        saved = state.store.finding(name)
        if saved is None:
            continue
        path = Path(saved.corpus) / saved.path
        entry = corpus.read(path)
        result = "accepted" if name in state.accepted else "ok" if kind == "known" and only_new else "failed"
        items.append(item(entry, target_of(entry, path, "")[1], str(path), result, kind, saved.message))
    if junit:
        write(junit, as_junit("fuzz campaign", items, sum(job.seconds for job in state.jobs)))
    if sarif:
        write(sarif, as_sarif(items, number()))


def say(text: str) -> None:
    """Prints a line for people; a terminal that is gone ends nothing."""
    with suppress(OSError):
        errors.print(text, highlight=False, markup=False, soft_wrap=True)
