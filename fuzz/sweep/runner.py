"""Runs a whole sweep by a worker, and files ordinary cases of its worst values as `fuzz run` files findings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rich.console import Console

from fuzz.errors import BackendError
from fuzz.model.case import Case
from fuzz.model.outcome import NotRun, describe
from fuzz.report.progress import TerminalProgress
from fuzz.run import environment
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.spec import Target
from fuzz.worker.retry_backoff import RetryBackoff
from fuzz.worker.worker import Worker, WorkerCrash

HANDLER = "fuzz.sweep.measure:make_handler"
REFERENCE_SECONDS = 60.0
"""Seconds beyond the target's timeout that one part may take, for its reference."""
MAX_CASES = 24
"""Cases of one value each that are made of what a sweep found wrong."""
MAX_FAILED = 4
"""Parts in which the kernel does not return after which a sweep ends."""


def run_sweep(plan: SweepPlan, memory: int, timeout: float) -> Iterator[SweepCounts]:
    """The counts so far, after each request. Raises as `call_again` does."""
    total = SweepCounts()
    with Worker(HANDLER, plan, memory, timeout + REFERENCE_SECONDS) as worker:
        for part in range(plan.requests):
            answer = call_again(worker, part)
            failed = not isinstance(answer, SweepCounts)
            total.add(SweepCounts(failed=[(part, describe(answer))]) if failed else answer)
            yield total
            if len(total.failed) >= MAX_FAILED:
                break


def call_again(worker: Worker, request: int) -> Any:
    """The response to a request, or the outcome where the kernel did not return.

    Waits where memory lacks through no fault of the kernel; BackendError where it still lacks then.
    """
    backoff = RetryBackoff()
    for tries in itertools.count(1):
        response = worker.call(request)
        answer = response.outcome if isinstance(response, WorkerCrash) else response
        if not isinstance(answer, NotRun):
            return answer
        if not backoff.wait(answer.message, tries, worker.deadline):
            raise BackendError(f"the kernel cannot be measured now: {answer.message}")


def make_cases(plan: SweepPlan, counts: SweepCounts) -> list[Case]:
    """Of each region and symptom the worst value as a case of its own; parts in which the kernel failed as a whole."""
    bits = [value.bits for value in counts.worst[:MAX_CASES]]
    single = [plan.case({name: (word,) for name, word in zip(plan.swept, words, strict=True)}) for words in bits]
    return [*single, *(part_case(plan, part * plan.parts // plan.requests) for part, _ in counts.failed[:1])]


def part_case(plan: SweepPlan, part: int) -> Case:
    """A part as one case."""
    bits = plan.bits(part)
    return plan.case({name: tuple(one.tolist()) for name, one in zip(plan.swept, bits, strict=True)})


def file_findings(plan: SweepPlan, counts: SweepCounts, file: Callable[[list[Case]], Result]) -> Result | None:
    """Files the worst values as findings; None where nothing is wrong.

    Where no value shows again when it runs alone, the whole part of the worst one is tried.
    """
    cases = make_cases(plan, counts)
    if not cases:
        return None
    result = file(cases)
    if result.bugs or not counts.worst:
        return result
    return file([part_case(plan, counts.worst[0].part)])


def breaks_contract(counts: SweepCounts, result: Result | None) -> bool:
    """Whether the contract is broken; what came out as too close to call does not break it."""
    return bool(counts.wrong or counts.failed) and not (result and result.unconfirmed)


class FindingsProgress(TerminalProgress):
    """Shows findings only: the command has reported its own progress."""

    def on_start(self, *arguments: object) -> None: ...
    def on_progress(self, *arguments: object) -> None: ...


def file_cases(
    options: RunOptions, target: Target, backend: str, console: Console, cases: list[Case], *sampled: str
) -> Result:
    """Files cases of one target into the corpus folder of the options, reporting on a console.

    Oracles that examine a share of cases do so with these where they are among `sampled`.
    """
    # It imports Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.run.fuzzer import Fuzzer

    assert options.corpus is not None
    fixed, progress = replace(options, engine="random", cases=len(cases)), FindingsProgress(console, target=target)
    return Fuzzer(
        fixed, target, backend, options.corpus, progress, environment.versions(),
        suspects=tuple(cases), suspect_oracles=sampled,
    ).run()  # fmt: skip


def exit_code(result: Result | None, *, is_broken: bool) -> int:
    """1 where a promise is broken, unless each of its findings is accepted or too low to count."""
    if result and result.bugs:
        return int(any(bug.counts(result.options.threshold) for bug in result.bugs))
    return int(is_broken)
