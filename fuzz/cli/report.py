"""``fuzz report``: findings as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import errors, put
from fuzz.cli.run import chosen_backend
from fuzz.cli.store import URL, needs_service
from fuzz.cli.version import number
from fuzz.report.files import check, write
from fuzz.web.pages.render import Table
from fuzz.web.pages.render import report as rendered
from fuzz.web.pages.views import View, view
from fuzz.web.plots.client import studies
from fuzz.web.plots.protocol import PlotConfig, PlotRequest, PlotResult


def report(
    what: Annotated[
        str, typer.Argument(help="An entry, a folder of them, or a campaign's number or name; corpus by default.")
    ] = "corpus",
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    store: Annotated[str, typer.Option(help="Where the campaign is: sqlite:///FILE or postgresql://HOST/NAME.")] = URL,
    backend: Annotated[str, typer.Option(help="Where plots are computed: auto, cpu or cuda.")] = "auto",
    target: Annotated[str, typer.Option(help="The file of the entries' target, where it is not beside them.")] = "",
    plots: Annotated[bool, typer.Option(help="Run the cases again for plots and scripts.")] = True,
) -> int:
    """Write findings into one HTML file with everything inside: numbers, plots, diagnosis, case, script."""
    check(out, "--out")
    source = of_path(Path(what)) if Path(what).exists() or looks_like_path(what) else of_campaign(what, store)
    sittings = [PlotRequest(path, corpus.read(path), repeat_of(path, target)) for path in source.paths]
    gallery = PlotConfig(chosen_backend(backend), target, beside=True) if plots and sittings else None
    views = drawn(sittings, gallery) if gallery else [viewed(one) for one in sittings]
    title = source.title or f"{views[0].target}: {views[0].title}, {views[0].size}"
    write(out, rendered(title, views, {**source.facts, **facts(views)}, source.tables))
    put(str(out))
    return 0


@dataclass(frozen=True)
class Source:
    """What a report is of: its title, empty for one entry, the entries, and what stands above them."""

    title: str
    paths: tuple[Path, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()


def looks_like_path(text: str) -> bool:
    return "/" in text or text.endswith(".yaml") or text == "corpus"


def of_path(place: Path) -> Source:
    paths = tuple(corpus.entry_files([place]))
    return Source("" if place.is_file() else f"Findings in {place}", paths)


def of_campaign(what: str, url: str) -> Source:
    """A campaign's findings whose entries are there, and how far each target is. UsageError where there is none."""
    needs_service()
    from fuzz.web.pages.campaign_report import summary

    title, paths, told, tables = summary(what, url)
    return Source(title, paths, told, tables)


def repeat_of(path: Path, target: str) -> str:
    return f"fuzz replay {path}" + (f" --target {target}" if target else "")


def drawn(sittings: Sequence[PlotRequest], gallery: PlotConfig) -> list[View]:
    """The views with what is drawn of them, told on standard error as it goes on."""
    views = []
    for sitting, study in zip(sittings, studies(sittings, gallery), strict=True):
        views.append(viewed(sitting, study))
        errors.print(f"{len(views)} of {len(sittings)}: {sitting.path}", highlight=False, markup=False)
    return views


def viewed(sitting: PlotRequest, study: PlotResult | None = None) -> View:
    return view(sitting.entry, str(sitting.path), sitting.repeat, study)


def facts(views: Sequence[View]) -> dict[str, str]:
    now = datetime.now(UTC)
    counts = {status: sum(one.status == status for one in views) for status in ("open", "fixed", "accepted")}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return {"findings": told or "none", "targets": str(len({one.target for one in views})),
            "written": f"{now:%Y-%m-%d %H:%M} UTC", "fuzz": number()}  # fmt: skip
