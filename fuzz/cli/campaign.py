"""``fuzz campaign``: many targets, many workers, days."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import errors, put_json
from fuzz.cli.store import needs_service


def campaign(
    config: Annotated[Path, typer.Argument(help="A YAML file; docs/campaigns.md tells its keys.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last campaign of this name.")] = False,
    only_new: Annotated[bool, typer.Option("--only-new", help="Exit with 1 only for findings not yet saved.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """Fuzz many targets with many workers until a budget ends; the same command with --resume goes on."""
    needs_service()
    from fuzz.campaigns.config import read
    from fuzz.campaigns.launch import launch
    from fuzz.campaigns.table import table, value

    # What stops services ends a campaign as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ledger, state = launch(read(config), resume=resume, say=say)
    with ledger.store:
        if json:
            put_json(value(ledger, state))
        else:
            errors.print(table(ledger))
            say(f"{state}; findings {len(ledger.new)} new, {len(ledger.known)} known, {len(ledger.fixed)} fixed")
    known = {*ledger.known, *ledger.again} - ledger.accepted
    return int(bool(ledger.new) or bool(known) and not only_new)


def say(text: str) -> None:
    """A line for people; a terminal that is gone ends nothing."""
    with suppress(OSError):
        errors.print(text, highlight=False, markup=False, soft_wrap=True)
