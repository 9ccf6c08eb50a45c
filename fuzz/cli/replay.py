"""Implements ``fuzz replay``, in both directions: open entries must still fail, fixed ones must pass.

Where no backend is named an entry runs on its own, the one that it was seen on, if that is here. An open entry that
agrees on another one passes. An entry that cannot be read or run here is skipped, and makes the command end with 2; one
whose worker failed by itself is as well, and makes it end with 3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fuzz.cli.console import complain, put, put_json
from fuzz.cli.shared_options import BackendName, EntriesTarget, Json
from fuzz.errors import INTERNAL, USAGE, InternalError, UsageError
from fuzz.escaping import printable
from fuzz.report.ci_files import CiFiles
from fuzz.report.items import replay_item
from fuzz.run.replay import ReplayedEntry, SkippedEntry, replay_entries


def replay(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Entries or folders; the folder corpus by default.")
    ] = None,
    backend: BackendName = "auto",
    target: EntriesTarget = "",
    junit: Annotated[Path | None, typer.Option(help="Write the entries as JUnit XML into this file.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the entries as SARIF 2.1.0 into this file.")] = None,
    json: Json = False,
) -> int:
    """Run saved cases again: open ones must still fail on the backend they were seen on, fixed ones must pass."""
    ci_files = CiFiles(junit, sarif)
    paths = paths or [Path("corpus")]
    start, results, skipped = time.monotonic(), list[ReplayedEntry](), list[SkippedEntry]()
    for result in replay_entries(paths, backend, target):
        if isinstance(result, SkippedEntry):
            skipped.append(result)
            why = "internal error in a worker\n" if isinstance(result.error, InternalError) else ""
            complain(f"skipped {printable(str(result.path))}: {why}{result.error}")
            continue
        results.append(result)
        if not json:
            put(f"{'ok    ' if result.passed else 'FAILED'} {result.path}: {result.message}")
    if not results and not skipped:
        raise UsageError(f"no entry in {', '.join(map(str, paths))}; entries are files whose names end in .yaml")
    if ci_files:
        items = [replay_item(result) for result in results]
        # Whoever reads the source should know of what disagrees there, whatever its status says.
        disagreeing = [item for item, result in zip(items, results, strict=True) if result.reproduced]
        ci_files.write("fuzz replay", items, time.monotonic() - start, disagreeing=disagreeing, skipped=skipped)
    failed = sum(not result.passed for result in results)
    if json:
        put_json(replay_json(results, skipped))
    elif results:
        put(f"{len(results) - failed} passed, {failed} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    if any(isinstance(each.error, InternalError) for each in skipped):
        return INTERNAL
    return 1 if failed else USAGE if skipped else 0


def replay_json(results: Sequence[ReplayedEntry], skipped: Sequence[SkippedEntry]) -> dict[str, Any]:
    """The value that ``fuzz replay --json`` prints."""
    return {
        "passed": sum(result.passed for result in results),
        "failed": sum(not result.passed for result in results),
        "skipped": len(skipped),
        "entries": [
            {
                "path": str(result.path),
                "status": result.entry.status,
                "backend": result.backend,
                "reproduced": result.reproduced,
                "passed": result.passed,
            }
            for result in results
        ]
        + [{"path": str(each.path), "skipped": str(each.error)} for each in skipped],
    }
