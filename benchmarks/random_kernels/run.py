"""Many seeds on several processes, each with its own share; a process that dies is an outcome as well."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from .build import Compiled, compiled, operations
from .check import CRASHED, DIFFERS, SAME, Outcome, check
from .evaluate import Stray
from .shrink import shrink
from .source import source
from .statements import kernel
from .tree import Kernel

BATCH = 32


@dataclass
class Finding:
    """A kernel that is not the same, as small as it got."""

    seed: int
    outcome: Outcome
    source: str


@dataclass
class Report:
    """What many kernels gave: how many of each outcome, how many kernels had each operation and dtype, the kernels that
    are not the same, and seconds of processors."""

    outcomes: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    processor: float = 0.0

    def add(self, other: Report) -> None:
        self.outcomes += other.outcomes
        self.operations += other.operations
        self.findings += other.findings
        self.processor += other.processor


def run_batch(seeds: Sequence[int], small: bool = True) -> Report:
    """Check these kernels, and shrink those that differ."""
    report, start = Report(), processor_seconds()
    for item in compiled([kernel(seed) for seed in seeds]):
        outcome = check(item)
        report.outcomes[outcome.what] += 1
        report.operations.update(set(operations(item.ttir)))
        if outcome.what != SAME:
            shrinks = small and outcome.what == DIFFERS
            report.findings.append(smallest(item.kernel, outcome) if shrinks else found(item.kernel, outcome))
    report.processor = processor_seconds() - start
    return report


def processor_seconds() -> float:
    """Of this process and of the C compilers that it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def smallest(first: Kernel, outcome: Outcome) -> Finding:
    """The shrunk kernel with its own outcome."""

    def alike(other: Outcome) -> bool:
        # A failure is to stay that failure; other bits are to stay other bits.
        return other.what == outcome.what and kind(other) == kind(outcome)

    def fails(item: Compiled) -> bool:
        try:
            return alike(check(item))
        except Stray:
            return False

    small = shrink(first, lambda kernels: [fails(item) for item in compiled(kernels)])
    (item,) = compiled([small])
    return Finding(first.seed, check(item), item.source)


def kind(outcome: Outcome) -> str:
    """The last line of an error without its numbers; nothing for other bits."""
    if " by the backend" in outcome.detail:
        return ""
    return outcome.detail.splitlines()[-1].split("(")[0]


def found(kernel: Kernel, outcome: Outcome) -> Finding:
    return Finding(kernel.seed, outcome, source(kernel))


# processes


def work(pipe: Connection, seeds: Iterator[range], deadline: float) -> None:
    """Tell of each batch before and after it."""
    for batch in seeds:
        if time.time() > deadline:
            break
        pipe.send(batch)
        pipe.send(run_batch(batch))
    pipe.send(None)


def share(first: int, count: int, number: int, processes: int) -> Iterator[range]:
    """The batches of one process."""
    for start in range(first + number * BATCH, first + count, processes * BATCH):
        yield range(start, min(start + BATCH, first + count))


def run(first: int, count: int, processes: int, seconds: float) -> Iterator[Report]:
    """Reports of batches as they end, from seeds first, first + 1, ... until the count or the time is used up."""
    deadline = time.time() + seconds
    context = multiprocessing.get_context("fork")
    # Which batch each process is at; after a death the next process goes on behind it.
    shares = {number: share(first, count, number, processes) for number in range(processes)}
    pipes: dict[Connection, tuple[int, Any]] = {}
    at: dict[int, range] = {}

    def start(number: int) -> None:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(theirs, shares[number], deadline), daemon=True)
        process.start()
        theirs.close()
        pipes[mine] = number, process

    for number in shares:
        start(number)
    while pipes:
        for ready in wait(list(pipes)):
            pipe: Any = ready
            number, process = pipes[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                del pipes[pipe]
                process.join()
                skip(shares[number], at[number])
                start(number)
                yield died(at[number])
                continue
            if message is None:
                del pipes[pipe]
                process.join()
            elif isinstance(message, range):
                at[number] = message
            else:
                yield message


def skip(shares: Iterator[range], last: range) -> None:
    """Past the batches that a process had, which took its own copy of the shares."""
    for batch in shares:
        if batch.start >= last.start:
            return


def died(batch: range) -> Report:
    """A batch with which a process ended; its seeds are to be run one by one."""
    outcome = Outcome(CRASHED, f"a process ended in seeds {batch.start} to {batch.stop - 1}")
    return Report(Counter({CRASHED: 1}), Counter(), [Finding(batch.start, outcome, "")])
