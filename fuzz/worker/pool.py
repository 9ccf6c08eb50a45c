"""Pool: some workers that answer a stream of waves; answers come in the order of the waves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fuzz.worker.process import SLICE, Fate, Worker, any_answer
from fuzz.worker.protocol import Report, Wave, report_of

DEPTH = 4
"""Waves waiting at each worker, so that it never waits for the next."""
FURTHEST = 1024
"""Waves that may be asked beyond the one whose answer is waited for: what is learnt from it is needed then."""


@dataclass
class Pool:
    """Workers alike, started when the first wave comes."""

    entry: str
    settings: Any
    memory: int
    timeout: float
    count: int
    workers: list[Worker] = field(default_factory=list)
    _asked: dict[int, list[int]] = field(default_factory=dict)
    _answered: dict[int, tuple[Wave, tuple[Report, ...]]] = field(default_factory=dict)
    _looked: float = 0.0

    def __enter__(self) -> Pool:
        make = (Worker(self.entry, self.settings, self.memory, self.timeout) for _ in range(self.count))
        self.workers = list(make)
        self._asked = {id(worker): [] for worker in self.workers}
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.stop()

    def answers(self, waves: Iterator[Wave]) -> Iterator[tuple[Wave, tuple[Report, ...]]]:
        """(wave, its reports) for each wave, in their order; new ones are taken as workers get free."""
        asked = upcoming = 0
        more = True
        while True:
            while more and asked - upcoming < FURTHEST and (worker := self._free()) is not None:
                wave = next(waves, None)
                if wave is None:
                    more = False
                    break
                self._asked[id(worker)].append(asked)
                worker.submit(wave)
                asked += 1
            if upcoming in self._answered:
                yield self._answered.pop(upcoming)
                upcoming += 1
            elif any(worker.pending for worker in self.workers):
                self._collect()
            elif not more:
                return

    def _free(self) -> Worker | None:
        least = min(self.workers, key=lambda worker: len(worker.pending))
        return least if len(least.pending) < DEPTH else None

    def _collect(self) -> None:
        """Takes an answer that has come; looks after every worker now and then, however busy one of them is."""
        ready = any_answer(self.workers, SLICE)
        everyone = ready is None or time.monotonic() - self._looked > SLICE
        if everyone:
            self._looked = time.monotonic()
        for worker in self.workers if everyone or ready is None else [ready]:
            if not worker.pending:
                continue
            answer = worker.answer(0)
            if answer is not None:
                wave, value = answer
                reports = self._told(wave, value) if isinstance(value, Fate) else value
                self._answered[self._asked[id(worker)].pop(0)] = (wave, reports)

    def _told(self, wave: Wave, fate: Fate) -> tuple[Report, ...]:
        """The reports of a wave in which a worker ended: its replicas are asked one by one, up to the one to blame."""
        questions = wave.questions()
        if len(questions) == 1:
            return (report_of(fate.outcome),)
        reports: list[Report] = []
        with Worker(self.entry, self.settings, self.memory, self.timeout) as alone:
            for question in questions:
                answer = alone.ask(question)
                if isinstance(answer, Fate):
                    return (*reports, report_of(answer.outcome))
                reports.append(answer)
        return tuple(reports)
