"""Runs a target's cases in a worker and sums what is observed of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fuzz import corpus
from fuzz.coverage_report.protocol import Observations
from fuzz.model.case import Case
from fuzz.run.options import RunOptions
from fuzz.search.engines.code_numbers import find_numbers
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.launch_options import launch_space
from fuzz.search.engines.random import RandomEngine
from fuzz.target.inputs import seed_cases
from fuzz.target.loader import check_fits
from fuzz.target.spec import Target
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import WorkerConfig
from fuzz.worker.worker import Worker, WorkerCrash

HANDLER = "fuzz.coverage_report.observe:make_handler"
"""The function that makes the handler of the worker, as ``module:function``."""


@dataclass
class Collected:
    """What was observed of the cases that ran, and the cases themselves; `crashed` of them ended the worker."""

    observations: Observations
    cases: list[Case]
    crashed: int = 0


def collect(target: Target, options: RunOptions, backend: str, folder: Path, process_start: float) -> Collected:
    """Runs the target's seeds, its saved entries and what the engine `random` draws, until the budget ends."""
    collected = Collected(Observations(), [])
    deadline = Deadline.after(options.time_limit, process_start)
    config = WorkerConfig(options.target, None, backend, counters=True)
    worker = Worker(HANDLER, config, options.worker_memory, target.timeout, deadline=deadline)
    try:
        for case in islice(_cases(target, options, folder), options.cases):
            response = worker.call(case)
            collected.cases.append(case)
            if isinstance(response, WorkerCrash):
                collected.crashed += 1
            else:
                collected.observations.add(response)
    except OutOfTime:
        pass
    finally:
        worker.stop()
    return collected


def _cases(target: Target, options: RunOptions, folder: Path) -> Iterator[Case]:
    yield from seed_cases(target)
    yield from _saved_cases(target, folder)
    dictionary = Dictionary()
    dictionary.add(find_numbers(target.launcher))
    engine = RandomEngine(target, options.seed, dictionary=dictionary, launches=launch_space(target.launcher))
    while True:
        yield engine.propose().plan


def _saved_cases(target: Target, folder: Path) -> Iterator[Case]:
    """The least cases of the target's entries. CorpusError where one cannot be read, or does not fit it."""
    place = folder / target.name
    for path in corpus.entry_files([place]) if place.is_dir() else ():
        entry = corpus.read(path)
        if not entry.planted:
            check_fits(entry.case, target, path)
            yield entry.case
