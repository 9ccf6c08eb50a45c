"""``fuzz report``: findings as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import errors, put
from fuzz.cli.run import chosen_backend
from fuzz.cli.version import number
from fuzz.entry import Entry
from fuzz.loader import find
from fuzz.pages.drawing import studies
from fuzz.pages.render import report as rendered
from fuzz.pages.views import View, view
from fuzz.report.files import check, write
from fuzz.target import Target
from fuzz.worker import preload


def report(
    what: Annotated[str, typer.Argument(help="A corpus entry or a folder of them; the folder corpus by default.")] = "",
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    backend: Annotated[str, typer.Option(help="Where plots are computed: auto, cpu or cuda.")] = "auto",
    target: Annotated[str, typer.Option(help="The file of the entries' target, where it is not beside them.")] = "",
    plots: Annotated[bool, typer.Option(help="Run the cases again for plots and scripts.")] = True,
) -> int:
    """Write findings into one HTML file with everything inside: numbers, plots, diagnosis, case, script."""
    check(out, "--out")
    place = Path(what or "corpus")
    given = [(path, corpus.read(path), repeat_of(path, target)) for path in corpus.files([place])]
    views = drawn(given, backend, target) if plots else [view(entry, str(path), text) for path, entry, text in given]
    title = f"{views[0].target}: {views[0].title}" if place.is_file() else f"Findings in {place}"
    write(out, rendered(title, views, facts(views)))
    put(str(out))
    return 0


def repeat_of(path: Path, target: str) -> str:
    return f"fuzz replay {path}" + (f" --target {target}" if target else "")


def drawn(given: Sequence[tuple[Path, Entry, str]], backend: str, target: str) -> list[View]:
    """The views with what is drawn of them, told on standard error as it goes on."""
    if not given:
        return []
    preload("fuzz.warm")

    def locate(entry: Entry, path: Path) -> tuple[str, Target]:
        return find(entry.case.target, path, target)

    views = []
    made = studies(given, chosen_backend(backend), locate)
    for (path, entry, text), study in zip(given, made, strict=True):
        views.append(view(entry, str(path), text, study))
        errors.print(f"{len(views)} of {len(given)}: {path}", highlight=False, markup=False)
    return views


def facts(views: Sequence[View]) -> dict[str, str]:
    now = datetime.now(UTC)
    counts = {status: sum(one.status == status for one in views) for status in ("open", "fixed", "accepted")}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return {"findings": told or "none", "targets": str(len({one.target for one in views})),
            "written": f"{now:%Y-%m-%d %H:%M} UTC", "fuzz": number()}  # fmt: skip
