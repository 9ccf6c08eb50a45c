"""Search: a whole sweep by a worker, and its worst values as ordinary cases that end as findings in the corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.outcome import describe
from fuzz.report.progress import Progress
from fuzz.run.fuzzer import Fuzzer, Result
from fuzz.search.engines import EngineScheduler
from fuzz.sweep.counts import SweepCounts
from fuzz.sweep.plan import SweepPlan
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import ReplicaGroup

HANDLER = "fuzz.sweep.worker:make_handler"
PATIENCE = 60.0
"""Seconds beyond the target's timeout that one part may take, for its reference."""
AHEAD = 2
"""Parts waiting at the worker, so that it never waits for the next."""
CASES = 24
"""Most cases of one value each that are made of what a sweep found wrong."""
FAILED = 4
"""Parts in which the kernel does not return after which a sweep ends."""


def swept(plan: SweepPlan, memory: int, timeout: float, told: Callable[[SweepCounts, int], None]) -> SweepCounts:
    """The tally of all parts. `told` is called after each with what there is so far and the number of requests done."""
    total = SweepCounts()
    with Worker(HANDLER, plan, memory, timeout + PATIENCE) as worker:
        upcoming = 0
        for part in range(plan.requests):
            while upcoming < min(plan.requests, part + AHEAD):
                worker.submit(upcoming)
                upcoming += 1
            while (answer := worker.receive(0.05)) is None:
                continue
            found = answer[1]
            total.add(
                SweepCounts(failed=[(part, describe(found.outcome))]) if isinstance(found, WorkerCrash) else found
            )
            told(total, part + 1)
            if len(total.failed) >= FAILED:
                break
    return total


def cases_of(plan: SweepPlan, tally: SweepCounts) -> list[Case]:
    """Of each region and symptom the worst value as a case of its own; parts in which the kernel failed as a whole."""
    made, seen = [], set()
    for one in tally.worst:
        if (one.region, one.symptom) not in seen:
            seen.add((one.region, one.symptom))
            made.append(plan.case({name: (word,) for name, word in zip(plan.swept, one.words, strict=True)}))
    return [*made[:CASES], *(whole(plan, part * plan.parts // plan.requests) for part, _ in tally.failed[:1])]


def whole(plan: SweepPlan, part: int) -> Case:
    """A part as one case."""
    words = plan.words(part)
    return plan.case({name: tuple(one.tolist()) for name, one in zip(plan.swept, words, strict=True)})


@dataclass
class FixedCasesFuzzer(Fuzzer):
    """A campaign whose cases are given, each asked of these sampled oracles and of those that examine every case."""

    cases: list[Case] = field(default_factory=list)
    sampled: tuple[str, ...] = ()

    def _make_scheduler(self) -> EngineScheduler:
        return EngineScheduler(())

    def _groups(self, plans: Iterator[tuple[Case, int]], start: float) -> Iterator[ReplicaGroup]:
        for index, case in enumerate(self.cases):
            yield ReplicaGroup(case, (self.sampled,), index)


class FindingsProgress(Progress):
    """Tells of findings only: the command has told of itself."""

    def on_start(self, *arguments: object) -> None: ...
    def on_progress(self, *arguments: object) -> None: ...


def findings(plan: SweepPlan, tally: SweepCounts, campaign: Callable[[list[Case]], FixedCasesFuzzer]) -> Result | None:
    """What becomes of the worst values: confirmed, shrunk, merged and saved. None where nothing is wrong.

    What does not show again when each value runs alone is asked once more with its whole part around it.
    """
    cases = cases_of(plan, tally)
    if not cases:
        return None
    result = campaign(cases).run()
    if result.bugs or not tally.worst:
        return result
    return campaign([whole(plan, tally.worst[0].part)]).run()
