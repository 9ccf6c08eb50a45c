"""Campaign: propose, run, judge, confirm, shrink, save, until a budget ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fuzz import corpus
from fuzz.case import Case
from fuzz.config import Run
from fuzz.engines import RandomEngine
from fuzz.entry import Entry
from fuzz.errors import TargetError
from fuzz.feedback import Feedback
from fuzz.finding import Finding
from fuzz.pool import Pool
from fuzz.question import ENTRY, Report, Setting, Wave
from fuzz.scout import Scout
from fuzz.seeds import seed_cases
from fuzz.shrink import Budget
from fuzz.target import Target
from fuzz.triage import Record, Triage, known_records, merge
from fuzz.trigger import needs
from fuzz.witness import parity, witnesses
from fuzz.worker import Worker

SHARES = {
    "deterministic": (4, 16),
    "layout": (4, 16),
    "rejects": (12, 32),
    "invariance": (1, 4),
    "scaling": (8, 16),
    "autograd": (8, 16),
}
"""A sampled oracle is asked about one case in so many, where it applies: of plans with one replica, and with more."""
HISTORY = 8
"""Plans remembered for findings that depend on what ran before them."""
GONE = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""
SHRINKING = 0.5
"""Shrinking and adjudication may take this share of the fuzzing time beyond its end."""


class Watcher(Protocol):
    """Who is told what happens while a campaign runs."""

    def started(self, run: Run, target: Target, backend: str) -> None: ...
    def progress(self, feedback: Feedback, seconds: float, findings: int) -> None: ...
    def first_seen(self, case: Case, finding: Finding, index: int) -> None: ...
    def shrunk(self, record: Record) -> None: ...
    def unconfirmed(self, finding: Finding, index: int, why: str) -> None: ...


def sampled(index: int, replicas: int) -> tuple[str, ...]:
    """The sampled oracles that are asked about case `index`, whose plan has so many replicas."""
    shares = {name: share[replicas > 1] for name, share in SHARES.items()}
    return tuple(name for name, share in shares.items() if index % share == share // 2)


@dataclass
class Result:
    """What a campaign came to."""

    run: Run
    backend: str
    feedback: Feedback
    records: list[Record]
    seconds: float
    interrupted: bool = False
    unconfirmed: int = 0


@dataclass
class Campaign:
    """One run over one target. `began` is when the process started, by time.monotonic."""

    run: Run
    target: Target
    backend: str
    folder: Path
    watcher: Watcher
    versions: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    feedback: Feedback = field(default_factory=Feedback)
    records: list[Record] = field(default_factory=list)
    history: deque[Case] = field(default_factory=lambda: deque(maxlen=HISTORY))
    oldest: Case | None = None
    unconfirmed: int = 0
    paused: float = 0.0
    refusal: str = ""

    def go(self) -> Result:
        """Runs until the budget ends, enough is found, or Ctrl-C, which ends it as the budget would."""
        setting = self.setting
        self.records += known_records(self.folder, self.target, self.run.planted)
        interrupted = False
        start = time.monotonic()
        self.watcher.started(self.run, self.target, self.backend)
        worker = Worker(ENTRY, setting, self.run.resident, self.target.timeout)
        limits = self.run.resident, self.target.timeout
        pool = Pool(ENTRY, setting, *limits, self.run.workers)
        scout = Scout.beside(self.run.workers, setting, *limits)
        with Triage(self.target, worker, tuple(SHARES)) as triage, pool, scout:
            try:
                plans = scout.before(RandomEngine(self.target, self.run.seed).waves())
                for wave, reports in pool.answers(self._waves(plans, start)):
                    for number, report in enumerate(reports):
                        case = wave.plan.replica(number)
                        self._learn(triage, wave.first + number, case, report)
                        self._remember(case, same_plan=number > 0)
                        if self._enough:
                            break
                    self.watcher.progress(self.feedback, time.monotonic() - start - self.paused, self._found_count)
                    if self._enough:
                        break
            except KeyboardInterrupt:
                interrupted = True
        seconds = time.monotonic() - start - self.paused
        if self.feedback.cases and self.feedback.cases == self.feedback.rejected:
            refused = f"every one of {self.feedback.cases} cases was refused"
            raise TargetError(f"target {self.target.name!r}: {refused}, the last one: {self.refusal}")
        hit = [record for record in self.records if record.hits]
        return Result(self.run, self.backend, self.feedback, hit, seconds, interrupted, self.unconfirmed)

    @property
    def setting(self) -> Setting:
        return Setting(str(self.run.target), self.run.planted, self.backend)

    @property
    def _found_count(self) -> int:
        return sum(record.hits > 0 for record in self.records)

    @property
    def _enough(self) -> bool:
        return bool(self.run.max_findings) and self._found_count >= (self.run.max_findings or 0)

    def _waves(self, plans: Iterator[tuple[Case, int]], start: float) -> Iterator[Wave]:
        index = 0
        for case in seed_cases(self.target)[: self.run.cases]:
            yield Wave(case, (tuple(SHARES),), index)
            index += 1
        for plan, size in plans:
            if self.run.cases is not None:
                size = min(size, self.run.cases - index)
            if not size or self.run.time is not None and time.monotonic() - start - self.paused >= self.run.time:
                return
            yield Wave(plan, tuple(sampled(index + place, size) for place in range(size)), index)
            index += size

    def _learn(self, triage: Triage, index: int, case: Case, report: Report) -> None:
        self.feedback.learn(case, report)
        self.refusal = report.outcome
        if report.filings:
            has = needs(case, self.target)
            unknown = (
                found for found in report.filings if not any(one.covers(found, has, case) for one in self.records)
            )
            self._found(triage, index, case, next(unknown, report.filings[0]))

    def _remember(self, case: Case, same_plan: bool) -> None:
        """Of each plan the last replica that ran."""
        self.oldest = self.oldest or case
        if same_plan:
            self.history.pop()
        self.history.append(case)

    def _found(self, triage: Triage, index: int, case: Case, finding: Finding) -> None:
        """Counts a hit of a known cause, or makes a new record of one."""
        paused = time.monotonic()
        seconds = paused - self.began
        if not self._known(triage, index, seconds, case, finding):
            self.watcher.first_seen(case, finding, index)
            filed = triage.filed(case, finding)
            if filed.oracle == finding.oracle or not self._known(triage, index, seconds, case, filed):
                self._new(triage, index, seconds, case, filed)
        self.paused += time.monotonic() - paused

    def _known(self, triage: Triage, index: int, seconds: float, case: Case, finding: Finding) -> bool:
        """Whether it is a hit of a known cause; then it is counted."""
        has = needs(case, self.target)
        for record in self.records:
            if record.covers(finding, has, case):
                self._hit(triage, record, index, seconds, finding)
                return True
        return False

    def _new(self, triage: Triage, index: int, seconds: float, case: Case, finding: Finding) -> None:
        earlier = [self.oldest, *self.history] if self.oldest else []
        record = triage.confirm(case, finding, earlier)
        if record is None:
            self._drop(finding, index, GONE)
        else:
            self._settle(triage, record, index, seconds, finding)

    def _drop(self, finding: Finding, index: int, why: str) -> None:
        self.unconfirmed += 1
        self.watcher.unconfirmed(finding, index, why)

    def _hit(self, triage: Triage, record: Record, index: int, seconds: float, finding: Finding) -> None:
        """Counts a hit; where it links outputs that were not seen together yet, they may allow a smaller case."""
        if not record.hits:
            record.first_index, record.first_seconds = index, seconds
        record.hits += 1
        linked = finding.oracle == record.finding.oracle and not record.known
        if linked and set(finding.outputs) & record.outputs and not set(finding.outputs) <= record.outputs:
            record.outputs.update(finding.outputs)
            before = replace(record)
            triage.shrink(record, Budget(seconds=self._allowance()))
            if record.verdict.name == "undecided":
                record.take(before)
            self._absorb(record)
            self._save(record)

    def _absorb(self, record: Record) -> None:
        """Takes in what was filed as another cause before this hit showed that both are one."""
        for other in [other for other in self.records if other is not record and not other.known]:
            if merge([record], other, dict(self.target.defaults)):
                self.records.remove(other)
                Path(other.path).unlink(missing_ok=True)

    def _settle(self, triage: Triage, record: Record, index: int, seconds: float, finding: Finding) -> None:
        record.first_index, record.first_seconds = index, seconds
        record.outputs = set(finding.outputs)
        record.numbers = any(one.leaves_open(finding) for one in self.records)
        try:
            triage.shrink(record, Budget(seconds=self._allowance()))
        except KeyboardInterrupt:
            self._save(record)
            self.records.append(record)
            raise
        if record.verdict.name == "undecided":
            self._drop(finding, index, UNDECIDED)
            return
        old = merge(self.records, record, dict(self.target.defaults))
        if old is None:
            self.records.append(record)
            self._hear_witnesses(record)
            old = record
        if not (old.known and old.case.key == old.first.key):
            self._save(old)
            self.watcher.shrunk(old)

    def _hear_witnesses(self, record: Record) -> None:
        """Asks other backends; where Triton's interpreter does not see it, it is the backends that differ."""
        if record.verdict.name != "reference":
            record.witnesses = witnesses(
                record.case, record.finding, self.setting, self.run.resident, self.target.timeout
            )
            record.finding = parity(record.finding, record.witnesses)

    def _save(self, record: Record) -> None:
        """Writes the record's entry, then removes the one of a larger case that it replaces."""
        previous = record.path
        path = corpus.add(self.folder, self._entry(record))
        if previous and previous != str(path):
            Path(previous).unlink(missing_ok=True)
        record.path = str(path)

    def _allowance(self) -> float:
        """Seconds that shrinking one more finding may take: what is left of half the run's time, 10 s at least."""
        budget = self.run.time or 60.0
        return max(SHRINKING * budget - self.paused, min(SHRINKING * budget, 10.0))

    def _entry(self, record: Record) -> Entry:
        seen = {
            "backend": self.backend,
            **self.versions,
            "rate": str(record.rate),
            "seed": str(self.run.seed),
            "first_case": str(record.first_index),
            **record.told,
        }
        also = tuple(f"{found.oracle} {found.output} {found.symptom}" for found in record.also)
        return Entry(record.case, record.finding, planted=self.run.planted or "", also=also, seen=seen)
