"""``fuzz run``: one target until a budget ends."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus
from fuzz.backends import backend as named_backend
from fuzz.backends import check_name
from fuzz.cli.console import errors, put_json
from fuzz.cli.version import number
from fuzz.errors import UsageError
from fuzz.report.files import check, write
from fuzz.report.items import items
from fuzz.report.json import run_json
from fuzz.report.junit import junit as as_junit
from fuzz.report.notify import NotifyingProgress
from fuzz.report.progress import summary
from fuzz.report.sarif import sarif as as_sarif
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer, Result
from fuzz.run.options import RunOptions
from fuzz.search.engines import check_engine
from fuzz.target.loader import BUILT_IN, LIBRARIES, load
from fuzz.target.loader import load_planted as planted_bug
from fuzz.target.spec import Target
from fuzz.worker.process import preload


def run(
    target: Annotated[str, typer.Argument(help="A built-in target, liger/softmax, a file, or file.py:name.")],
    seconds: Annotated[float | None, typer.Option(help="Fuzz for so long; 60 where no budget is given.")] = None,
    cases: Annotated[int | None, typer.Option(help="Fuzz so many cases.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed, target and number of cases give the same findings.")] = 0,
    backend: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, random, evolve or atheris.")] = "auto",
    planted: Annotated[str | None, typer.Option(help="Run a planted bug instead of the good kernel.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder for findings.")] = None,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    max_findings: Annotated[int | None, typer.Option(help="End after so many findings.")] = None,
    only_new: Annotated[bool, typer.Option("--only-new", help="Exit with 1 only for findings not yet saved.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write findings as JUnit XML into this file.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write findings as SARIF 2.1.0 into this file.")] = None,
    notify: Annotated[str, typer.Option(help="Run this command for each new finding, told as JSON on its input.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """Fuzz one target until a budget ends."""
    asked = RunOptions(target, planted, backend, engine, seed, seconds, cases, workers, max_findings, only_new, corpus)
    check(junit, "--junit")
    check(sarif, "--sarif")
    result = fuzz(asked, notify)
    write_triage(result, junit, sarif)
    if json:
        put_json(run_json(result))
    else:
        errors.print(summary(result))
    return int(any(not bug.accepted and not (bug.known and only_new) for bug in result.bugs))


def write_triage(result: Result, junit: Path | None, sarif: Path | None) -> None:
    """The files for continuous integration that were asked for."""
    if not (junit or sarif):
        return
    found = items(result, load(result.options.target), only_new=result.options.only_new)
    if junit:
        guilty = {one.rule.split("/")[0] for one in found}
        agreed = {name: count for name, count in result.statistics.oracles.items() if name not in guilty}
        write(junit, as_junit(f"fuzz run {result.options.target}", found, result.seconds, agreed))
    if sarif:
        write(sarif, as_sarif(found, number()))


def fuzz(asked: RunOptions, notification: str = "") -> Result:
    """Checks everything that the caller gave, then fuzzes with progress on standard error."""
    began = time.monotonic() - environment.process_age()
    check_engine(asked.engine)
    target = checked_target(asked.target, asked.planted, asked.backend)
    folder = asked.corpus or default_folder(target, asked.planted)
    corpus.check_writable(folder)
    watcher = NotifyingProgress(errors, "fuzz replay", notification=notification)
    try:
        result = Fuzzer(asked, target, chosen_backend(asked.backend), folder, watcher, versions(), began).run()
        watcher.ended(result)
        return result
    finally:
        watcher.finish()


def checked_target(target: str, planted: str | None, backend: str) -> Target:
    """The target, once everything that names it is known to exist; meanwhile the server of workers starts."""
    check_name(backend)
    if reason := environment.unsupported():
        raise UsageError(reason)
    preload("fuzz.oracles.preload")
    loaded = load(target)
    if planted:
        planted_bug(loaded, planted)
    return loaded


def chosen_backend(name: str) -> str:
    """The backend's own name. BackendError where it cannot run here."""
    return named_backend(name).name


def versions() -> dict[str, str]:
    return environment.versions()


def default_folder(target: Target, planted: str | None) -> Path:
    """``corpus`` beside the target's file, or beside the built-in targets' folder; temporary for planted bugs."""
    if planted:
        return Path(tempfile.mkdtemp(prefix="fuzz-planted-"))
    folder = target.path.parent
    if folder.parent == BUILT_IN and folder.name in LIBRARIES:
        folder = BUILT_IN
    return (folder.parent if folder == BUILT_IN else folder) / "corpus"
