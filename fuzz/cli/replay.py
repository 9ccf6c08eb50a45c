"""``fuzz replay``: corpus entries in both directions: open ones must still fail, fixed ones must pass.

Where no backend is named an entry runs on its own, the one that it was seen on, if that is here. An open entry that
agrees on another one passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import put, put_json
from fuzz.cli.run import chosen_backend
from fuzz.cli.version import number
from fuzz.model.entry import Entry
from fuzz.report.files import check, write
from fuzz.report.items import Item, item
from fuzz.report.junit import junit as as_junit
from fuzz.report.sarif import sarif as as_sarif
from fuzz.run.replay import elsewhere, own_backend, reproduces, target_of
from fuzz.target.spec import Target
from fuzz.worker.process import preload


@dataclass(frozen=True)
class Replayed:
    path: Path
    entry: Entry
    target: Target
    reproduced: bool
    backend: str

    @property
    def elsewhere(self) -> bool:
        return elsewhere(self.entry, self.backend, self.reproduced)

    @property
    def passed(self) -> bool:
        """Whether the entry did what its status says of its own backend; an accepted one may do either."""
        as_said = self.reproduced == (self.entry.status == "open")
        return self.entry.status == "accepted" or as_said or self.elsewhere


def replay(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Entries or folders; the folder corpus by default.")
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    target: Annotated[str, typer.Option(help="The file of the entries' target, where it is not beside them.")] = "",
    junit: Annotated[Path | None, typer.Option(help="Write the entries as JUnit XML into this file.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the entries as SARIF 2.1.0 into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """Run saved cases again: open ones must still fail on the backend they were seen on, fixed ones must pass."""
    check(junit, "--junit")
    check(sarif, "--sarif")
    began = time.monotonic()
    results = list(replayed(paths or [Path("corpus")], backend, target, quiet=json))
    if junit:
        write(junit, as_junit("fuzz replay", [item_of(one) for one in results], time.monotonic() - began))
    if sarif:
        # Whoever reads the source should know of what disagrees there, whatever its status says.
        write(sarif, as_sarif([item_of(one) for one in results if one.reproduced], number()))
    failed = [result for result in results if not result.passed]
    if json:
        put_json(
            {
                "passed": len(results) - len(failed),
                "failed": len(failed),
                "entries": [
                    {
                        "path": str(one.path),
                        "status": one.entry.status,
                        "backend": one.backend,
                        "reproduced": one.reproduced,
                        "passed": one.passed,
                    }
                    for one in results
                ],
            }
        )
    else:
        put(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


def replayed(paths: list[Path], backend: str, target: str, *, quiet: bool = True) -> Iterator[Replayed]:
    """Replays every entry, each in a clean worker."""
    places = list(corpus.entry_files(paths))
    entries = [(path, corpus.read(path)) for path in places]
    if entries:
        preload("fuzz.oracles.preload")
    usual = chosen_backend(backend)
    for path, entry in entries:
        name = chosen_backend(own_backend(entry, usual)) if backend == "auto" else usual
        text, loaded = target_of(entry, path, target)
        result = Replayed(path, entry, loaded, reproduces(entry, text, loaded, name), name)
        if not quiet:
            put(f"{'ok    ' if result.passed else 'FAILED'} {path}: {told(result)}")
        yield result


def item_of(result: Replayed) -> Item:
    state = "accepted" if result.entry.status == "accepted" else "ok" if result.passed else "failed"
    return item(result.entry, result.target, str(result.path), state, "saved", told(result))


def told(result: Replayed) -> str:
    shown = "disagrees" if result.reproduced else "agrees"
    if result.elsewhere:
        return f"open, seen on {result.entry.provenance.backend}; agrees on {result.backend}"
    if result.passed:
        return f"{result.entry.status}, {shown}"
    if result.reproduced:
        return f"marked {result.entry.status}, but it disagrees again"
    return f"marked {result.entry.status}, but it agrees now; fuzz mark {result.path} fixed --why .."
