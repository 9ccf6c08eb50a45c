"""Implements ``fuzz run``: one target until a budget ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import complain, end_process, errors, put_json
from fuzz.cli.shared_options import BackendName, FailOn, FindingsFolder, Json, Junit, OnlyNew, Sarif, Targets
from fuzz.cli.supervisor import first_process
from fuzz.errors import USAGE, TargetError, UsageError
from fuzz.report.ci_files import CiFiles
from fuzz.report.items import run_items, unconfirmed_oracles
from fuzz.report.json import VERSION, run_json
from fuzz.report.notify import NotifyingProgress
from fuzz.report.progress import profile_table, summary
from fuzz.run import environment
from fuzz.run.input_file import read_input
from fuzz.run.options import RunOptions
from fuzz.run.result import NOTHING_RAN, Result
from fuzz.run.setup import choose_backend, load_checked_target, writable_findings_folder
from fuzz.search.statistics import RunStatistics
from fuzz.target.finder import find_targets
from fuzz.target.loader import locate
from fuzz.target.spec import Target
from fuzz.target_code import prepare
from fuzz.worker.deadline import Deadline

START_SECONDS = 0.5
"""Seconds after the deadline in which a run that has begun may end by itself."""


def run(
    target: Targets,
    seconds: Annotated[float | None, typer.Option(help="Fuzz for so long; 60 where no budget is given.")] = None,
    cases: Annotated[int | None, typer.Option(help="Fuzz so many cases.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed, target and number of cases give the same findings.")] = 0,
    backend: BackendName = "auto",
    engine: Annotated[str, typer.Option(help="auto, random, evolve or atheris.")] = "auto",
    planted: Annotated[str | None, typer.Option(help="Run a planted bug instead of the good kernel.")] = None,
    corpus: FindingsFolder = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Worker processes; 1 with --cases, else what the machine has room for, at most 4."),
    ] = None,
    max_findings: Annotated[int | None, typer.Option(help="End after so many findings.")] = None,
    only_new: OnlyNew = False,
    fail_on: FailOn = "medium",
    junit: Junit = None,
    sarif: Sarif = None,
    given: Annotated[
        Path | None,
        typer.Option("--input", help="Examine the input in this file (.pt, .npz, .json, .yaml) first, or alone."),
    ] = None,
    derived_rejects: Annotated[
        bool,
        typer.Option(help="Also try inputs that the declaration rules out, and show those that are not refused."),
    ] = True,
    notify: Annotated[str, typer.Option(help="Run this command with each new finding as JSON on its input.")] = "",
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time went, activity by activity.")] = False,
    json: Json = False,
) -> int:
    """Fuzz one target until a budget ends, or each of several."""
    cases = 1 if given is not None and seconds is None and cases is None else cases
    budget = seconds, cases, workers, max_findings
    options = RunOptions(target, planted, backend, engine, seed, *budget, corpus, fail_on=fail_on)
    options = replace(options, derived_rejects=derived_rejects)
    ci_files = CiFiles(junit, sarif)
    texts = find_targets(target)
    done = fuzz_each(texts, options, notify, given, with_profile=profile, json=json)
    if ci_files:
        items = [item for loaded, result in done for item in run_items(result, loaded, only_new=only_new)]
        examined = Counter[str]()
        for _, result in done:
            examined.update(result.statistics.oracles)
        seconds_taken, unconfirmed = sum(result.seconds for _, result in done), unconfirmed_oracles(done)
        ci_files.write(f"fuzz run {target}", items, seconds_taken, examined=examined, unconfirmed=unconfirmed)
    if json:
        runs = [run_json(result, profile) for _, result in done]
        put_json(runs[0] if len(texts) == 1 else {"version": VERSION, "runs": runs})
    is_complete = len(done) == len(texts) or any(result.interrupted for _, result in done)
    return int(any(result.fails(only_new=only_new) for _, result in done)) if is_complete else USAGE


def fuzz_each(
    texts: list[str], options: RunOptions, notification: str, given: Path | None, *, with_profile: bool, json: bool
) -> list[tuple[Target, Result]]:
    """Fuzzes one target after the other, up to one that somebody interrupts; of several those that can run."""
    done: list[tuple[Target, Result]] = []
    process_start = time.monotonic() - environment.process_age(first_process())
    for number, text in enumerate(texts):
        begin = time.monotonic() if number else process_start
        try:
            done.append(fuzz(replace(options, target=text), notification, given, begin))
        except (TargetError, UsageError) as error:
            if len(texts) == 1:
                raise
            complain(f"{text}: {error}")
            continue
        result = done[-1][1]
        if not json:
            errors.print(summary(result))
            if with_profile:
                errors.print(profile_table(result))
        if result.interrupted:
            break
    return done


def fuzz(options: RunOptions, notification: str, given: Path | None, process_start: float) -> tuple[Target, Result]:
    """Checks everything that the caller gave, then fuzzes with progress on standard error.

    `process_start` is when the budget of time began, by time.monotonic.
    """
    # These import Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.run.fuzzer import Fuzzer
    from fuzz.search.engines import check_engine

    deadline, statistics = Deadline.after(options.time_limit, process_start), RunStatistics()
    watcher = NotifyingProgress(errors, notification=notification, deadline=deadline)
    check_engine(options.engine)
    locate(options.target)
    prepare()
    try:
        with limited_start(deadline, statistics):
            target = load_checked_target(options.target, options.planted, options.backend)
            folder = writable_findings_folder(target, options.planted, options.corpus)
            inputs = (read_input(given, target),) if given else ()
            backend, versions = choose_backend(options.backend), environment.versions()
            fuzzer = Fuzzer(
                options, target, backend, folder, watcher, versions, process_start, inputs,
                deadline=deadline, statistics=statistics,
            )  # fmt: skip
            result = fuzzer.run()
        watcher.notify_rest(result)
        return target, result
    finally:
        watcher.finish()


@contextmanager
def limited_start(deadline: Deadline, statistics: RunStatistics) -> Iterator[None]:
    """Ends the process where the deadline passes inside before a case has run.

    Imports and the start of the first worker, which take seconds, much longer on a busy machine, cannot be interrupted.
    """

    def give_up() -> None:
        if not statistics.cases:
            complain(NOTHING_RAN)
            end_process(USAGE)

    timer = threading.Timer(min(max(deadline.seconds_left, 0) + START_SECONDS, threading.TIMEOUT_MAX), give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
