"""Makes autotuners choose each of their configurations, and launch all of them first, as their benchmarks do."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import SolutionReport
from fuzz.judge.result.judgement import HISTORY, Evidence
from fuzz.model.case import Case, LaunchOptions
from fuzz.model.edit import with_launch
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.rate import Rate

MOST_CONFIGURATIONS = 8
"""Configurations that are tried."""
WINNERS = 4
"""Configurations that win a benchmark, the first and the last among them."""
AFTER_BENCHMARK = (
    "it is wrong in the call in which the autotuner benchmarks its configurations, whose launches write the same memory"
)


def configuration_cases(cases: list[Case], count: int) -> Iterator[Case]:
    """The cases with each of MOST_CONFIGURATIONS at most, but for the first one, which has been tried."""
    for number in range(1, min(count, MOST_CONFIGURATIONS)):
        for case in cases:
            yield with_launch(case, LaunchOptions(config=number))


def examine_benchmarks(worker: IsolatedWorker, case: Case, count: int) -> Evidence | None:
    """The evidence that the first call of a key is wrong, whichever of some configurations wins its benchmark."""
    winners = sorted({number * (count - 1) // (WINNERS - 1) for number in range(WINNERS)})
    found = (examine_benchmark(worker, with_launch(case, LaunchOptions(config=number))) for number in winners)
    return next(filter(None, found), None)


def examine_benchmark(worker: IsolatedWorker, case: Case) -> Evidence | None:
    """The evidence that a call with a benchmark is wrong, while one is right that takes a configuration unmeasured.

    It runs in a new process: what has launched its kernels with other memory before may do so only once.
    """
    worker.restart()
    ran = worker.run(case, benchmarks=True)
    if not isinstance(ran, SolutionReport):
        return None
    found, plain = find_mistakes(worker, case, ran), worker.run(case)
    if not found or not isinstance(plain, SolutionReport) or find_mistakes(worker, case, plain):
        return None
    return Evidence(
        HISTORY, found[0].outputs, "benchmark", f"{AFTER_BENCHMARK}: {found[0].message}", "high", "ordinary", case,
        rate=Rate(1, 1), details=("reset_to_zero and restore_value undo what a benchmark writes",),
    )  # fmt: skip


def find_mistakes(worker: IsolatedWorker, case: Case, ran: SolutionReport) -> list[Finding]:
    """What is wrong with a call, but for values that the problem's own code gets as wrong."""
    findings = worker.report(case, ran).findings
    return [one for one in findings if one.oracle != ACCURACY.name or not worker.last.is_excused]
