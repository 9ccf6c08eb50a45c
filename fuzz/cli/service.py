"""Implements ``fuzz serve``, the service (dashboard, API, metrics), and ``fuzz store``, the database of campaigns."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fuzz.backends import check_name
from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import Json, PlotBackendName, StoreUrl, refuse_unused
from fuzz.errors import USAGE, CorpusError, UsageError
from fuzz.run.environment import fuzz_version

CONFIGS, CORPUS = Path("configs"), Path("corpus")
URL = "sqlite:///.fuzz/store.sqlite"
"""Where campaigns keep their state by default."""

# With a callback it stays a group, though it has one command.
store = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The database of campaigns.", callback=lambda: None
)


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="A campaign's file: its store and corpus are shown, and it can be started.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; only loopback needs no token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free one.")] = 8327,
    token: Annotated[
        str, typer.Option(envvar="FUZZ_TOKEN", show_envvar=True, help="What every request must carry.")
    ] = "",
    corpus: Annotated[list[Path] | None, typer.Option(help="A folder of entries to show; may be repeated.")] = None,
    configs: Annotated[list[Path] | None, typer.Option(help="A folder of campaign files; may be repeated.")] = None,
    targets: Annotated[list[Path] | None, typer.Option(help="A folder of targets; may be repeated.")] = None,
    store: StoreUrl = "",
    backend: PlotBackendName = "auto",
    judge: Annotated[bool, typer.Option("--judge", help="Judge the solutions that are sent, which runs them.")] = False,
    judge_files: Annotated[
        list[Path] | None, typer.Option(help="A folder whose problems and solutions may be named; may be repeated.")
    ] = None,
    judge_workers: Annotated[int, typer.Option(help="How many solutions are judged at once.")] = 1,
) -> int:
    """Serve pages and an API over campaigns, findings and the corpus, until Ctrl-C."""
    if not judge:
        refuse_unused("--judge", {"--judge-files": bool(judge_files), "--judge-workers": judge_workers != 1})
    require_service_packages("fastapi", "prometheus_client", "uvicorn", what="fuzz serve needs")
    check_name(backend)
    from fuzz.campaign.config import load_config
    from fuzz.web.server import run
    from fuzz.web.settings import Settings

    content = load_config(config) if config else None
    config_paths = (*([config] if config else []), *(configs or ([CONFIGS] if CONFIGS.is_dir() else [])))
    settings = Settings(
        store or (content.store if content else URL),
        tuple(corpus or [Path(content.corpus) if content else CORPUS]),
        config_paths, tuple(targets or ()), host, port, token, backend, judge, tuple(judge_files or ()), judge_workers,
    )  # fmt: skip
    return run(settings, fuzz_version(), lambda address: errors.print(f"serving {address}"))


@store.command()
def rebuild(
    corpus: Annotated[Path, typer.Option(help="The folder of entries, which is the truth of findings.")] = CORPUS,
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
    return USAGE if result.unreadable else 0


def require_service_packages(*more: str, what: str = "campaigns need") -> None:
    """UsageError where one of the packages of campaigns, or one of `more`, is not installed."""
    for name in ("pydantic", "sqlalchemy", *more):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is not installed; {what} the extra [service]") from None
