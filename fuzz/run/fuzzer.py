"""Campaign: propose, run, judge, confirm, shrink, save, until a budget ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fuzz import corpus
from fuzz.errors import TargetError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.run.options import Run
from fuzz.search.engines import EngineScheduler, make_scheduler
from fuzz.search.engines.atheris.engine import AtherisConfig
from fuzz.search.engines.literals import literals
from fuzz.search.statistics import RunStatistics
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import load_planted
from fuzz.target.seeds import seed_cases
from fuzz.target.spec import Target
from fuzz.triage.bug import Record, known_records, merge, same_cause
from fuzz.triage.conditions import needs
from fuzz.triage.cross_check import stands_alone, witnesses
from fuzz.triage.triage import Triage
from fuzz.worker.pool import Pool
from fuzz.worker.precompile import Scout
from fuzz.worker.process import Worker
from fuzz.worker.protocol import ENTRY, Report, Setting, Wave

SHARES = {
    "deterministic": (4, 16),
    "layout": (4, 12),
    "rejects": (12, 16),
    "invariance": (1, 3),
    "scaling": (8, 16),
    "autograd": (8, 16),
}
"""A sampled oracle is asked about one case in so many, where it applies: of plans with one replica, and with more.
Invariance and layout do not apply to cases without a split and to contiguous ones; of all cases each is asked about one
in 16 at least, where plans have several replicas."""
EXPLORE = "fuzz.search.engines.atheris.process:service"
"""What the process of the engine atheris runs."""
HISTORY = 8
"""Plans remembered for findings that depend on what ran before them."""
GONE = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""
UNGUIDED = ("random", "exhaustive")
"""Engines that do not ask what kernels did, so that nothing counts it."""
SHRINKING = 0.5
"""Shrinking and adjudication may take this share of the fuzzing time beyond its end."""


class Watcher(Protocol):
    """Who is told what happens while a campaign runs: of each wave before it runs, and when it has been judged."""

    def started(self, run: Run, target: Target, backend: str) -> None: ...
    def asked(self, wave: Wave) -> None: ...
    def answered(self, wave: Wave) -> None: ...
    def progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None: ...
    def first_seen(self, case: Case, finding: Finding, index: int) -> None: ...
    def saved(self, record: Record, replaced: str) -> None: ...
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
    statistics: RunStatistics
    records: list[Record]
    seconds: float
    interrupted: bool = False
    unconfirmed: int = 0
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass
class Campaign:
    """One run over one target. `began` is when the process started, by time.monotonic.

    `suspects` are cases that run before all others: they ran when an earlier run ended. With `beside`, a smaller case
    of a cause that the corpus holds already is saved beside the entry that was there. While it files a finding,
    `turn` keeps others out of the target's folder.
    """

    run: Run
    target: Target
    backend: str
    folder: Path
    watcher: Watcher
    versions: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    statistics: RunStatistics = field(default_factory=RunStatistics)
    records: list[Record] = field(default_factory=list)
    history: deque[Case] = field(default_factory=lambda: deque(maxlen=HISTORY))
    oldest: Case | None = None
    latest: Case | None = None
    unconfirmed: int = 0
    paused: float = 0.0
    refusal: str = ""
    suspects: tuple[Case, ...] = ()
    beside: bool = True
    turn: Callable[[Path], AbstractContextManager[None]] = corpus.lock

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
        asked = self._make_scheduler()
        with Triage(self.target, worker, tuple(SHARES)) as triage, pool, scout, asked:
            try:
                plans = scout.before(asked.plans())
                for wave, reports in pool.answers(self._noted(self._waves(plans, start))):
                    paused, number = self.paused, self._learn(triage, wave, reports)
                    self._remember(wave.plan, number)
                    asked.learn(wave.plan, reports[: number + 1], self.paused - paused)
                    self.watcher.progress(self.statistics, time.monotonic() - start - self.paused, self._found_count)
                    if self._enough:
                        break
                    self.watcher.answered(wave)
            except KeyboardInterrupt:
                interrupted = True
        seconds = time.monotonic() - start - self.paused
        if self.statistics.cases and self.statistics.cases == self.statistics.rejected:
            refused = f"every one of {self.statistics.cases} cases was refused"
            raise TargetError(f"target {self.target.name!r}: {refused}, the last one: {self.refusal}")
        hit = [record for record in self.records if record.hits]
        told = interrupted, self.unconfirmed, asked.statistics()
        return Result(self.run, self.backend, self.statistics, hit, seconds, *told)

    @property
    def setting(self) -> Setting:
        return Setting(str(self.run.target), self.run.planted, self.backend, self.run.engine not in UNGUIDED)

    def _make_scheduler(self) -> EngineScheduler:
        """Who is asked for plans."""
        told = self.run.seed, self._numbers, self._explorer, self.run.plan
        return make_scheduler(self.run.engine, self.target, self.backend, *told)

    @property
    def _numbers(self) -> tuple[float, ...]:
        """The numbers in the code that runs."""
        bug = self.run.planted
        return tuple(literals(load_planted(self.target, bug)[1] if bug else self.target.launcher))

    def _explorer(self, folder: Path) -> Worker:
        """The process of the engine atheris, with its inputs in a folder."""
        exploration = AtherisConfig(self.setting, self.run.seed, folder, self._numbers)
        return Worker(EXPLORE, exploration, self.run.resident, self.target.timeout)

    @property
    def _found_count(self) -> int:
        return sum(record.hits > 0 for record in self.records)

    @property
    def _enough(self) -> bool:
        return bool(self.run.max_findings) and self._found_count >= (self.run.max_findings or 0)

    def _waves(self, plans: Iterator[tuple[Case, int]], start: float) -> Iterator[Wave]:
        index = self.run.case
        end = None if self.run.cases is None else index + self.run.cases
        first = seed_cases(self.target) if self.run.plan == 0 else ()
        for case in (*self.suspects, *first)[: self.run.cases]:
            yield Wave(case, (tuple(SHARES),), index)
            index += 1
        for plan, size in plans:
            if end is not None:
                size = min(size, end - index)
            if not size or self.run.time is not None and time.monotonic() - start - self.paused >= self.run.time:
                return
            yield Wave(plan, tuple(sampled(index + place, size) for place in range(size)), index)
            index += size

    def _noted(self, waves: Iterator[Wave]) -> Iterator[Wave]:
        for wave in waves:
            self.watcher.asked(wave)
            yield wave

    def _learn(self, triage: Triage, wave: Wave, reports: Sequence[Report]) -> int:
        """Takes in the reports on a wave, up to that with which enough is found; its number, or the last one's."""
        # Replicas differ in their seeds only; making the case of each would take longer than what is learnt of it.
        begin = 0
        for number, report in enumerate(reports):
            if report.filings:
                self.statistics.learn(wave.plan, *reports[begin : number + 1])
                begin = number + 1
                self._learn_filed(triage, wave, number, report)
                if self._enough:
                    break
        else:
            self.statistics.learn(wave.plan, *reports[begin:])
        self.refusal = reports[number].outcome
        return number

    def _learn_filed(self, triage: Triage, wave: Wave, number: int, report: Report) -> None:
        index, case = wave.first + number, wave.plan.replica(number)
        if number:
            self._remember(wave.plan, number - 1)
        has = needs(case, self.target)
        unknown = (found for found in report.filings if not any(one.covers(found, has, case) for one in self.records))
        self._found(triage, index, case, next(unknown, report.filings[0]))

    def _remember(self, plan: Case, number: int) -> None:
        """Of each plan the last replica that ran."""
        self.oldest = self.oldest or plan
        if self.latest is plan:
            self.history.pop()
        self.latest = plan
        self.history.append(plan.replica(number))

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
        if record is not None:
            self._settle(triage, record, index, seconds, finding)
            return
        self._drop(finding, index, GONE)
        if finding.oracle == "fault":
            # Something else ended the worker, before it could say what else there is to the case.
            other = triage.ask(case, finding.oracle, clean=True, everything=True).filed
            if other and other.oracle != "fault" and not self._known(triage, index, seconds, case, other):
                self._new(triage, index, seconds, case, other)

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
            elif record.less(before, self.target.defaults):
                self._hear_witnesses(record)
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
        if not any(same_cause(old, record) and not record.less(old, self.target.defaults) for old in self.records):
            self._hear_witnesses(record)
        self._file(record, finding)

    def _file(self, record: Record, seen: Finding) -> None:
        """Merges a record with an earlier one or adds it, and saves it; no other run files one of its own meanwhile."""
        with self.turn(self.folder / self.target.name):
            stays = self._look_for_others(record)
            if stays is not None:
                stays.hits += record.hits
                stays.taken.append((seen, record.first))
                return
            old = merge(self.records, record, dict(self.target.defaults))
            if old is None:
                self.records.append(record)
                old = record
            else:
                old.taken.append((seen, record.first))
            if not (old.known and old.case.key == old.first.key):
                self._save(old)
                self.watcher.shrunk(old)

    def _look_for_others(self, record: Record) -> Record | None:
        """The same cause among entries that are not replaced: those that other runs saved meanwhile, or all."""
        here = {one.path for one in self.records}
        others = [one for one in known_records(self.folder, self.target, self.run.planted) if one.path not in here]
        self.records += others
        kept = others if self.beside else [one for one in self.records if one.known]
        return next((one for one in kept if same_cause(one, record)), None)

    def _hear_witnesses(self, record: Record) -> None:
        """Asks other backends about the record's case."""
        if record.verdict.name != "reference":
            record.witnesses = witnesses(
                record.case, record.finding, self.setting, self.run.resident, self.target.timeout
            )
            record.parity = stands_alone(record.witnesses)

    def _save(self, record: Record) -> None:
        """Writes the record's entry, in the place of the one of a larger case."""
        previous = record.path
        record.path = str(corpus.add(self.folder, self._entry(record), Path(previous) if previous else None))
        self.watcher.saved(record, previous if previous != record.path else "")

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
        return Entry(record.case, record.filing, planted=self.run.planted or "", also=also, seen=seen)
