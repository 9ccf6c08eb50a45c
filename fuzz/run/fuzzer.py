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
from fuzz.backends import BACKENDS
from fuzz.errors import TargetError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.oracles import FAULT, SAMPLED_ORACLES, sample_oracles
from fuzz.run.options import RunOptions
from fuzz.search.engines import EngineScheduler, make_scheduler
from fuzz.search.engines.atheris.engine import HANDLER as ATHERIS_HANDLER
from fuzz.search.engines.atheris.engine import AtherisConfig
from fuzz.search.engines.literals import literals
from fuzz.search.statistics import RunStatistics
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import load_planted
from fuzz.target.seeds import seed_cases
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, known_bugs, merge_bug, same_cause
from fuzz.triage.conditions import non_defaults
from fuzz.triage.cross_check import cross_check, only_on_cpu
from fuzz.triage.triage import Triage
from fuzz.worker.pool import Pool
from fuzz.worker.precompile import Precompiler
from fuzz.worker.process import Worker
from fuzz.worker.protocol import HANDLER, ReplicaGroup, Report, WorkerConfig

HISTORY = 8
"""Plans remembered for findings that depend on what ran before them."""
NOT_REPRODUCED = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""
UNGUIDED = ("random", "exhaustive")
"""Engines that do not ask what kernels did, so that nothing counts it."""
SHRINKING = 0.5
"""Shrinking and adjudication may take this share of the fuzzing time beyond its end."""


class Watcher(Protocol):
    """Who is told what happens while a campaign runs: of each group before it runs, and when it has been judged."""

    def on_start(self, options: RunOptions, target: Target, backend: str) -> None: ...
    def on_group_start(self, group: ReplicaGroup) -> None: ...
    def on_group_done(self, group: ReplicaGroup) -> None: ...
    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None: ...
    def on_disagreement(self, case: Case, finding: Finding, index: int) -> None: ...
    def on_saved(self, bug: Bug, replaced: str) -> None: ...
    def on_shrunk(self, bug: Bug) -> None: ...
    def on_unconfirmed(self, finding: Finding, index: int, why: str) -> None: ...


@dataclass
class Result:
    """What a campaign came to."""

    options: RunOptions
    backend: str
    statistics: RunStatistics
    bugs: list[Bug]
    seconds: float
    interrupted: bool = False
    unconfirmed: int = 0
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass
class Fuzzer:
    """Fuzzes one target: proposes cases, runs and compares them, and shrinks, merges and saves what disagrees.

    `process_start` is when the process started, by time.monotonic. `suspects` are cases that run before all others:
    they ran when an earlier run ended. With `keep_smaller_duplicate`, a smaller case of a cause that the corpus holds
    already is saved as another entry. While a finding is saved, `file_lock` keeps others out of the target's folder.
    A run whose cases were all rejected raises TargetError, unless `allow_all_rejected`.
    """

    options: RunOptions
    target: Target
    backend: str
    folder: Path
    watcher: Watcher
    versions: dict[str, str]
    process_start: float = field(default_factory=time.monotonic)
    statistics: RunStatistics = field(default_factory=RunStatistics)
    bugs: list[Bug] = field(default_factory=list)
    history: deque[Case] = field(default_factory=lambda: deque(maxlen=HISTORY))
    oldest: Case | None = None
    latest: Case | None = None
    unconfirmed: int = 0
    paused_seconds: float = 0.0
    last_rejection: str = ""
    suspects: tuple[Case, ...] = ()
    keep_smaller_duplicate: bool = True
    allow_all_rejected: bool = False
    file_lock: Callable[[Path], AbstractContextManager[None]] = corpus.lock

    def run(self) -> Result:
        """Runs until the budget ends, enough is found, or Ctrl-C, which ends it as the budget would."""
        worker_config = self.worker_config
        self.bugs += known_bugs(self.folder, self.target, self.options.planted)
        interrupted = False
        start = time.monotonic()
        self.watcher.on_start(self.options, self.target, self.backend)
        worker = Worker(HANDLER, worker_config, self.options.worker_memory, self.target.timeout)
        limits = self.options.worker_memory, self.target.timeout
        pool = Pool(HANDLER, worker_config, *limits, self.options.workers)
        precompiler = Precompiler.for_run(
            self.options.workers, worker_config, *limits, only_compiles=BACKENDS[self.backend].compiles_without_device
        )
        asked = self._make_scheduler()
        with Triage(self.target, worker, SAMPLED_ORACLES) as triage, pool, precompiler, asked:
            try:
                plans = precompiler.compile_ahead(asked.plans())
                for group, reports in pool.examine(self._noted(self._groups(plans, start))):
                    paused, number = self.paused_seconds, self._learn(triage, group, reports)
                    self._remember(group.plan, number)
                    asked.learn(group.plan, reports[: number + 1], self.paused_seconds - paused)
                    self.watcher.on_progress(
                        self.statistics, time.monotonic() - start - self.paused_seconds, self._found_count
                    )
                    if self._is_full:
                        break
                    self.watcher.on_group_done(group)
            except KeyboardInterrupt:
                interrupted = True
        seconds = time.monotonic() - start - self.paused_seconds
        if self.statistics.all_rejected and not self.allow_all_rejected:
            refused = f"every one of {self.statistics.cases} cases was refused"
            raise TargetError(f"target {self.target.name!r}: {refused}, the last one: {self.last_rejection}")
        hit = [bug for bug in self.bugs if bug.hits]
        told = interrupted, self.unconfirmed, asked.statistics()
        return Result(self.options, self.backend, self.statistics, hit, seconds, *told)

    @property
    def worker_config(self) -> WorkerConfig:
        return WorkerConfig(
            str(self.options.target), self.options.planted, self.backend, self.options.engine not in UNGUIDED
        )

    def _make_scheduler(self) -> EngineScheduler:
        """Who is asked for plans."""
        told = self.options.seed, self._numbers, self._explorer, self.options.first_plan
        return make_scheduler(self.options.engine, self.target, self.backend, *told)

    @property
    def _numbers(self) -> tuple[float, ...]:
        """The numbers in the code that runs."""
        bug = self.options.planted
        return tuple(literals(load_planted(self.target, bug)[1] if bug else self.target.launcher))

    def _explorer(self, folder: Path) -> Worker:
        """The process of the engine atheris, with its inputs in a folder."""
        exploration = AtherisConfig(self.worker_config, self.options.seed, folder, self._numbers)
        return Worker(ATHERIS_HANDLER, exploration, self.options.worker_memory, self.target.timeout)

    @property
    def _found_count(self) -> int:
        return sum(bug.hits > 0 for bug in self.bugs)

    @property
    def _is_full(self) -> bool:
        return bool(self.options.max_findings) and self._found_count >= (self.options.max_findings or 0)

    def _groups(self, plans: Iterator[tuple[Case, int]], start: float) -> Iterator[ReplicaGroup]:
        index = self.options.first_case
        limit = self.options.time_limit
        end = None if self.options.cases is None else index + self.options.cases
        first = seed_cases(self.target) if self.options.first_plan == 0 else ()
        for case in (*self.suspects, *first)[: self.options.cases]:
            yield ReplicaGroup(case, (SAMPLED_ORACLES,), index)
            index += 1
        for plan, size in plans:
            if end is not None:
                size = min(size, end - index)
            if not size or limit is not None and time.monotonic() - start - self.paused_seconds >= limit:
                return
            yield ReplicaGroup(plan, tuple(sample_oracles(index + place, size) for place in range(size)), index)
            index += size

    def _noted(self, groups: Iterator[ReplicaGroup]) -> Iterator[ReplicaGroup]:
        for group in groups:
            self.watcher.on_group_start(group)
            yield group

    def _learn(self, triage: Triage, group: ReplicaGroup, reports: Sequence[Report]) -> int:
        """Takes in the reports on a group, up to that with which enough is found; its number, or the last one's."""
        # Replicas differ in their seeds only; making the case of each would take longer than what is learnt of it.
        begin = 0
        for number, report in enumerate(reports):
            if report.filed_findings:
                self.statistics.learn(group.plan, *reports[begin : number + 1])
                begin = number + 1
                self._learn_filed(triage, group, number, report)
                if self._is_full:
                    break
        else:
            self.statistics.learn(group.plan, *reports[begin:])
        self.last_rejection = reports[number].outcome
        return number

    def _learn_filed(self, triage: Triage, group: ReplicaGroup, number: int, report: Report) -> None:
        index, case = group.first + number, group.plan.replica(number)
        if number:
            self._remember(group.plan, number - 1)
        has = non_defaults(case, self.target)
        unknown = (
            found for found in report.filed_findings if not any(one.covers(found, has, case) for one in self.bugs)
        )
        self._found(triage, index, case, next(unknown, report.filed_findings[0]))

    def _remember(self, plan: Case, number: int) -> None:
        """Of each plan the last replica that ran."""
        self.oldest = self.oldest or plan
        if self.latest is plan:
            self.history.pop()
        self.latest = plan
        self.history.append(plan.replica(number))

    def _found(self, triage: Triage, index: int, case: Case, finding: Finding) -> None:
        """Counts a hit of a known cause, or makes a new bug of one."""
        paused = time.monotonic()
        seconds = paused - self.process_start
        if not self._known(triage, index, seconds, case, finding):
            self.watcher.on_disagreement(case, finding, index)
            filed = triage.find_primary(case, finding)
            if filed.oracle == finding.oracle or not self._known(triage, index, seconds, case, filed):
                self._new(triage, index, seconds, case, filed)
        self.paused_seconds += time.monotonic() - paused

    def _known(self, triage: Triage, index: int, seconds: float, case: Case, finding: Finding) -> bool:
        """Whether it is a hit of a known cause; then it is counted."""
        has = non_defaults(case, self.target)
        for bug in self.bugs:
            if bug.covers(finding, has, case):
                self.record_hit(triage, bug, index, seconds, finding)
                return True
        return False

    def _new(self, triage: Triage, index: int, seconds: float, case: Case, finding: Finding) -> None:
        earlier = [self.oldest, *self.history] if self.oldest else []
        bug = triage.confirm(case, finding, earlier)
        if bug is not None:
            self.add_bug(triage, bug, index, seconds, finding)
            return
        self._drop(finding, index, NOT_REPRODUCED)
        if finding.oracle == FAULT.name:
            # Something else ended the worker, before it could say what else there is to the case.
            other = triage.examine(case, finding.oracle, clean=True, everything=True).primary_finding
            if other and other.oracle != FAULT.name and not self._known(triage, index, seconds, case, other):
                self._new(triage, index, seconds, case, other)

    def _drop(self, finding: Finding, index: int, why: str) -> None:
        self.unconfirmed += 1
        self.watcher.on_unconfirmed(finding, index, why)

    def record_hit(self, triage: Triage, bug: Bug, index: int, seconds: float, finding: Finding) -> None:
        """Counts a hit; where it links outputs that were not seen together yet, they may allow a smaller case."""
        if not bug.hits:
            bug.first_index, bug.first_seconds = index, seconds
        bug.hits += 1
        linked = finding.oracle == bug.finding.oracle and not bug.known
        if linked and set(finding.outputs) & bug.outputs and not set(finding.outputs) <= bug.outputs:
            bug.outputs.update(finding.outputs)
            before = replace(bug)
            triage.shrink(bug, Budget(seconds=self._allowance()))
            if bug.verdict.name == "undecided":
                bug.move_to(before)
            elif bug.is_smaller_than(before, self.target.defaults):
                self.cross_check_bug(bug)
            self._absorb(bug)
            self._save(bug)

    def _absorb(self, bug: Bug) -> None:
        """Takes in what was filed as another cause before this hit showed that both are one."""
        for other in [other for other in self.bugs if other is not bug and not other.known]:
            if merge_bug([bug], other, dict(self.target.defaults)):
                self.bugs.remove(other)
                Path(other.path).unlink(missing_ok=True)

    def add_bug(self, triage: Triage, bug: Bug, index: int, seconds: float, finding: Finding) -> None:
        bug.first_index, bug.first_seconds = index, seconds
        bug.outputs = set(finding.outputs)
        bug.has_nan_cause = any(one.may_hide(finding) for one in self.bugs)
        try:
            triage.shrink(bug, Budget(seconds=self._allowance()))
        except KeyboardInterrupt:
            self._save(bug)
            self.bugs.append(bug)
            raise
        if bug.verdict.name == "undecided":
            self._drop(finding, index, UNDECIDED)
            return
        if not any(same_cause(old, bug) and not bug.is_smaller_than(old, self.target.defaults) for old in self.bugs):
            self.cross_check_bug(bug)
        self._file(bug, finding)

    def _file(self, bug: Bug, seen: Finding) -> None:
        """Merges a bug with an earlier one or adds it, and saves it; no other run files one of its own meanwhile."""
        with self.file_lock(self.folder / self.target.name):
            stays = self._look_for_others(bug)
            if stays is not None:
                stays.hits += bug.hits
                stays.aliases.append((seen, bug.original))
                return
            old = merge_bug(self.bugs, bug, dict(self.target.defaults))
            if old is None:
                self.bugs.append(bug)
                old = bug
            else:
                old.aliases.append((seen, bug.original))
            if not (old.known and old.case.key == old.original.key):
                self._save(old)
                self.watcher.on_shrunk(old)

    def _look_for_others(self, bug: Bug) -> Bug | None:
        """The same cause among entries that are not replaced: those that other runs saved meanwhile, or all."""
        here = {one.path for one in self.bugs}
        others = [one for one in known_bugs(self.folder, self.target, self.options.planted) if one.path not in here]
        self.bugs += others
        kept = others if self.keep_smaller_duplicate else [one for one in self.bugs if one.known]
        return next((one for one in kept if same_cause(one, bug)), None)

    def cross_check_bug(self, bug: Bug) -> None:
        """Asks other backends about the bug's case."""
        if bug.verdict.name != "reference":
            bug.cross_checks = cross_check(
                bug.case, bug.finding, self.worker_config, self.options.worker_memory, self.target.timeout
            )
            bug.only_on_cpu = only_on_cpu(bug.cross_checks)

    def _save(self, bug: Bug) -> None:
        """Writes the bug's entry, in the place of the one of a larger case."""
        previous = bug.path
        bug.path = str(corpus.add(self.folder, self._entry(bug), Path(previous) if previous else None))
        self.watcher.on_saved(bug, previous if previous != bug.path else "")

    def _allowance(self) -> float:
        """Seconds that shrinking one more finding may take: what is left of half the run's time, 10 s at least."""
        budget = self.options.time_limit or 60.0
        return max(SHRINKING * budget - self.paused_seconds, min(SHRINKING * budget, 10.0))

    def _entry(self, bug: Bug) -> Entry:
        seen = replace(
            bug.provenance,
            backend=self.backend,
            versions=self.versions,
            rate=bug.rate,
            seed=self.options.seed,
            first_case=bug.first_index,
        )
        also = tuple(other.summary for other in bug.also)
        return Entry(bug.case, bug.reported_finding, planted=self.options.planted or "", also=also, provenance=seen)
