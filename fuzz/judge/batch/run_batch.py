"""Judges tasks in several processes side by side, those of one content once."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.judge.batch.host import JudgeHost, Stopped
from fuzz.judge.batch.results_file import ResultsFile
from fuzz.judge.batch.task import JudgeTask, failure
from fuzz.judge.result.judgement import CHEAT, EXIT_CODES, NOT_COMPARABLE, RIGHT, UNDECIDED, UNSUPPORTED, WRONG
from fuzz.judge.result.score import UNREADABLE

VERDICTS = (RIGHT, WRONG, CHEAT, UNDECIDED, NOT_COMPARABLE, UNSUPPORTED)
Document = Mapping[str, Any]
"""A judgement as JSON."""


@dataclass
class BatchSummary:
    """What became of a batch. `known` of its solutions had been judged before; the others took `seconds`."""

    judgements: list[Document] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    known: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """How many solutions there are of each verdict."""
        found = Counter(one["verdict"] for one in self.judgements)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def per_minute(self) -> float:
        """Verdicts a minute, of those that were judged now."""
        return 60 * (len(self.judgements) - self.known) / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """The highest one of a solution; 2 where a solution has no problem."""
        return max([EXIT_CODES[one["verdict"]] for one in self.judgements] + [2 if self.left_out else 0])


def run_batch(
    tasks: Sequence[JudgeTask],
    workers: int,
    results: ResultsFile,
    on_judged: Callable[[Document], object],
    make_host: Callable[[], JudgeHost] = JudgeHost,
) -> BatchSummary:
    """Judges all tasks, and calls `on_judged` with each judgement as it comes."""
    summary, start = BatchSummary(), time.monotonic()
    by_key: dict[str, list[JudgeTask]] = defaultdict(list)

    def report(task: JudgeTask, judgement: Document) -> None:
        named = {**judgement, "problem": task.problem or judgement.get("problem", ""), "solution": task.solution}
        summary.judgements.append(named)
        on_judged(named)

    for task in tasks:
        try:
            by_key[task.key].append(task)
        except UsageError as error:
            report(task, failure(task, one_line(error), UNREADABLE))
    for key in [key for key in by_key if key in results.kept]:
        same = by_key.pop(key)
        summary.known += len(same)
        for task in same:
            report(task, results.kept[key])
    with closing(judge_side_by_side({key: same[0] for key, same in by_key.items()}, workers, make_host)) as judged:
        for key, judgement in judged:
            results.add(key, judgement)
            for task in by_key[key]:
                report(task, {"key": key, **judgement})
    summary.seconds = time.monotonic() - start
    return summary


def judge_side_by_side(
    tasks: Mapping[str, JudgeTask], workers: int, make_host: Callable[[], JudgeHost]
) -> Generator[tuple[str, Document], None, None]:
    """(key, judgement) of each task, as they come. Where the caller stops, so do the processes."""
    waiting: SimpleQueue[tuple[str, JudgeTask]] = SimpleQueue()
    found: SimpleQueue[tuple[str, Document] | Exception] = SimpleQueue()
    stopped = threading.Event()
    for item in tasks.items():
        waiting.put(item)

    def work() -> None:
        """A host ends with the thread that started it."""
        with closing(make_host()) as host:
            try:
                with suppress(Stopped):
                    for key, task in take_all(waiting):
                        found.put((key, host.judge(task, stopped.is_set)))
            except Exception as error:
                found.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(tasks)))]
    for thread in threads:
        thread.start()
    try:
        for _ in tasks:
            answer = found.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def take_all(waiting: SimpleQueue[tuple[str, JudgeTask]]) -> Iterator[tuple[str, JudgeTask]]:
    """Everything that waits, until nothing does."""
    with suppress(Empty):
        while True:
            yield waiting.get_nowait()
