"""Implements ``fuzz store``: the database of campaigns."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import put, put_json
from fuzz.cli.shared_options import Json, StoreUrl
from fuzz.errors import CorpusError, UsageError

URL = "sqlite:///.fuzz/store.sqlite"
"""Where campaigns keep their state by default."""

store = typer.Typer(no_args_is_help=True, add_completion=False)


@store.callback()
def database() -> None:
    """The database of campaigns."""


@store.command()
def rebuild(
    corpus: Annotated[Path, typer.Option(help="The folder of entries, which is the truth of findings.")] = Path(
        "corpus"
    ),
    url: StoreUrl = URL,
    json: Json = False,
) -> int:
    """Make the findings of a store again from a corpus folder."""
    require_service_packages()
    from fuzz.campaign.store import Store
    from fuzz.campaign.store import rebuild as rebuild_store

    if not corpus.is_dir():
        raise CorpusError(f"{corpus} is no folder of corpus entries")
    with Store(url) as opened:
        result = rebuild_store(opened, corpus)
    if json:
        put_json({**vars(result), "added": len(result.added)})
    else:
        put(f"{result.findings} findings: {len(result.added)} added, {result.forgotten} forgotten")
        for line in result.unreadable:
            put(f"cannot be read: {line}")
    return int(bool(result.unreadable))


def require_service_packages(*more: str, what: str = "campaigns need") -> None:
    """UsageError where one of the packages of campaigns, or one of `more`, is not installed."""
    for name in ("alembic", "pydantic", "sqlalchemy", *more):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is not installed; {what} the extra [service]") from None
