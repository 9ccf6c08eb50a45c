"""Runs one target until a budget ends: proposes cases, runs and compares them, and hands disagreements to triage."""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.backends import BACKENDS
from fuzz.errors import TargetError, UsageError
from fuzz.model.case import Case
from fuzz.model.oracle_specs import FAULT, SAMPLED_ORACLES
from fuzz.run.case_budget import CaseBudget
from fuzz.run.derived_rejects import PATIENCE, DerivedRejects
from fuzz.run.findings.budgets import ASKING_SHARE, GRADING_SHARE
from fuzz.run.findings.finding_handler import FindingHandler
from fuzz.run.findings.known_bugs import read_known_bugs
from fuzz.run.findings.triage_priority import TriagePriority
from fuzz.run.findings.triage_queue import InOrder, TriageOrder, TriageQueue
from fuzz.run.options import RunOptions
from fuzz.run.result import NOTHING_RAN, WAITS, Result
from fuzz.run.setup import serve_target
from fuzz.run.watcher import Watcher
from fuzz.search.engines import EngineScheduler, make_scheduler
from fuzz.search.engines.atheris.engine import HANDLER as ATHERIS_HANDLER
from fuzz.search.engines.atheris.engine import AtherisConfig
from fuzz.search.engines.code_numbers import find_numbers
from fuzz.search.engines.launch_options import launch_space
from fuzz.search.statistics import LARGE, RunStatistics
from fuzz.target.inputs import seed_cases
from fuzz.target.loader import load_planted
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.error_patterns import PatternCounts
from fuzz.triage.input_classes import is_usual
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.pool import Pool, WorkerTeam
from fuzz.worker.precompile import Precompiler, ReadyFirst
from fuzz.worker.protocol import HANDLER, ReplicaGroup, Report, WorkerConfig
from fuzz.worker.system import total_memory
from fuzz.worker.target_server import TargetServer
from fuzz.worker.worker import Worker
from fuzz.worker.worker_process import ProgramOrders

UNGUIDED_ENGINES = ("random", "exhaustive")
"""Engines that do not ask what kernels did, so that nothing counts it."""
PROCESSORS_PER_WORKER, MEMORY_PER_WORKER = 4, 8 << 30
"""Processors and bytes of the machine for which a run that time ends has a worker. The other processors compile coming
plans and triage what disagrees; at least half of the bytes are that worker's."""
LEAST_WORKERS = 2
"""Workers on as many processors, without an accelerator: two workers compile less together than one of them and a
process that compiles ahead, whose plans are loaded and launched once more."""
MOST_WORKERS = 4
"""Workers that a run has at most by default: on a GPU more of them share its memory, and gain little."""
PROCESSORS_PER_HELPER, MOST_HELPERS = 2, 8
"""One helper of triage for so many processors that are left by then, and at most so many."""


@dataclass
class History:
    """What a worker ran before a case: the first plan, and of each of the last plans the last replica that ran."""

    size: int = 8
    first: Case | None = None
    latest: Case | None = None
    recent: deque[Case] = field(default_factory=deque)

    def add(self, plan: Case, replica: int) -> None:
        """Takes the replica in; it replaces an earlier one of the same plan, which is the latest one."""
        self.first = self.first or plan
        if self.latest is plan:
            self.recent.pop()
        self.latest = plan
        self.recent.append(plan.replica(replica))
        if len(self.recent) > self.size:
            self.recent.popleft()

    @property
    def cases(self) -> list[Case]:
        return [self.first, *self.recent] if self.first else []


def fitting_processes(memory_limit: int) -> int:
    """How many processes the machine has memory for, of which each may have so many bytes; 0 says the usual ones."""
    return total_memory() // max(MEMORY_PER_WORKER, memory_limit)


def usual_workers(backend: str, memory_limit: int) -> int:
    """How many workers a run has that time ends: as many as the machine has processors and memory for."""
    processors = len(os.sched_getaffinity(0))
    least = 1 if BACKENDS[backend].is_accelerator else min(processors, LEAST_WORKERS)
    most = max(processors // PROCESSORS_PER_WORKER, least)
    return max(1, min(most, fitting_processes(memory_limit), MOST_WORKERS))


def usual_helpers(workers: int, backend: str, memory_limit: int) -> int:
    """How many helpers triage has beside so many workers: as many as there are processors and memory left for.

    None where each helper would have to load the target anew, nor one alone, beside which nothing would run.
    """
    if not BACKENDS[backend].forks_loaded_processes:
        return 0
    processors, fitting = len(os.sched_getaffinity(0)), fitting_processes(memory_limit) - workers
    most = min((processors - workers - 1) // PROCESSORS_PER_HELPER, fitting, MOST_HELPERS)
    return most if most > 1 else 0


@dataclass
class Fuzzer:
    """Fuzzes one target with one backend, and saves what it finds in a corpus folder.

    `process_start` is when the process started, by time.monotonic. The run ends by its `deadline`, which is as long
    after that as the options say. What disagrees is confirmed and shrunk beside the cases that run, on one processor
    too, and in turn with them where `in_turn` says so: by default where the run ends after so many findings, so that it
    runs no case after the last one. `suspects` are cases that run before all others: they ran when an earlier run
    ended, or somebody asks about them; `suspect_oracles` of the sampled oracles examine them. `usual_cases` counts
    examined cases that are not extreme. `helpers` is how many triage has: none where the options say how many workers
    there are, or cases end the run. `orders` is what is known, and learnt, of the orders of the kernel's programs.
    `keep_smaller_duplicate`, `file_lock` and `with_cross_checks` are explained at FindingHandler.
    """

    options: RunOptions
    target: Target
    backend: str
    folder: Path
    watcher: Watcher
    versions: dict[str, str]
    process_start: float = field(default_factory=time.monotonic)
    suspects: tuple[Case, ...] = ()
    suspect_oracles: tuple[str, ...] = SAMPLED_ORACLES
    keep_smaller_duplicate: bool = True
    file_lock: Callable[[Path], AbstractContextManager[None]] = corpus.lock
    with_cross_checks: bool = True
    allow_all_rejected: bool = False
    deadline: Deadline | None = None
    in_turn: bool | None = None
    orders: ProgramOrders = field(default_factory=ProgramOrders)
    helpers: int = 0
    statistics: RunStatistics = field(default_factory=RunStatistics)
    histories: defaultdict[int, History] = field(default_factory=lambda: defaultdict(History))
    patterns: PatternCounts = field(default_factory=PatternCounts)
    last_rejection: str = ""
    lack: str = ""
    usual_cases: int = 0
    _seconds_drawing: float = 0.0

    def __post_init__(self) -> None:
        if self.options.workers is None and self.options.cases:
            self.options = replace(self.options, workers=1)
        elif self.options.workers is None:
            self.options = replace(self.options, workers=usual_workers(self.backend, self.options.memory))
            self.helpers = usual_helpers(self.options.workers or 1, self.backend, self.options.memory)

    def run(self) -> Result:
        """Runs until the budget ends, enough is found, or Ctrl-C, which ends it as the budget would.

        Raises TargetError where every case was rejected, and UsageError where the time ended before
        one had run, or the machine lacked what each of them needs, unless `allow_all_rejected`.
        """
        start, interrupted = time.monotonic(), False
        deadline = self.deadline or Deadline.after(self.options.time_limit, self.process_start)
        self.watcher.on_start(self.options, self.target, self.backend)
        known = read_known_bugs(self.folder, self.target, self.options.planted, (), self.watcher.on_left_out)
        limits = self.options.worker_memory, self.target.timeout
        server = serve_target(self.worker_config, limits[0], deadline)
        worker = Worker(HANDLER, self.worker_config, *limits, deadline=deadline, server=server, orders=self.orders)
        rejects = DerivedRejects(self.target, worker.clone(PATIENCE * self.target.timeout))
        workers, budget = self.options.workers or 1, CaseBudget(self.options.cases, self.options.first_case)
        pool = Pool(HANDLER, self.worker_config, *limits, workers, deadline, server, self.orders)
        precompiler = Precompiler.for_run(
            workers, self.worker_config, *limits, only_compiles=self._only_compiles, deadline=deadline, server=server
        )
        scheduler = self.make_scheduler(deadline)
        with server, self._triage(worker, server) as triage, pool, precompiler, scheduler, rejects:
            pool.backoff.on_lack = triage.backoff.on_lack = self._note_lack
            findings = self.make_handler(triage, known, deadline)
            order = self._order(known, findings, deadline)
            with TriageQueue(findings.handle, self.watcher.on_group_done, self._takes_turns, order) as queue:
                findings.postprocessor.defer, findings.budgets.has_news = queue.defer, queue.has_news
                try:
                    queue.submit(findings.shrinker.resume)
                    plans = self._plans(scheduler, precompiler, pool)
                    for group, reports in budget.examine(
                        self._single_cases(), plans, lambda groups: pool.examine(self._announce(groups))
                    ):
                        self._learn(group, reports, findings, scheduler, queue, self.histories[pool.reporter])
                        if self._derives_rejects and rejects.takes(group.plan, reports):
                            queue.submit(partial(rejects.try_next, group.plan))
                        self.statistics.compiling = compiling_share(pool.profile)
                        self.watcher.on_progress(self.statistics, time.monotonic() - start, len(findings.hit_bugs))
                        if findings.is_enough:
                            break
                        queue.end_group(group)
                    queue.finish()
                except OutOfTime:
                    pass
                except KeyboardInterrupt:
                    interrupted = True
                    self.watcher.on_interrupt()
                finally:
                    # Whatever ends the run, no call goes on.
                    running = pool.running
                    deadline.end_now()
                queue.finish()
            loaded_anew = server.given_up
            self.watcher.on_end(running)
            findings.finish(self.usual_cases)
        seconds = time.monotonic() - start
        result = self._result(findings, seconds, interrupted, scheduler, len(running))
        profile = self._profile(pool, triage, queue, server)
        return replace(result, profile=profile, invalid_inputs=rejects.results, loaded_anew=loaded_anew)

    @property
    def _only_compiles(self) -> bool:
        """Whether what compiles ahead uses no device."""
        return BACKENDS[self.backend].compiles_without_device

    def _plans(
        self, scheduler: EngineScheduler, precompiler: Precompiler, pool: Pool
    ) -> Iterator[tuple[Case, int] | None]:
        """The plans of a run with their numbers of replicas; None where none is compiled yet."""
        if not (self._only_compiles and precompiler.workers and self.options.time_limit is not None):
            return precompiler.compile_ahead(scheduler.plans())
        # Workers start while the first plans are compiled.
        pool.start()
        return ReadyFirst(precompiler.workers, scheduler, self._note_left_out).compile_ahead()

    def _note_left_out(self) -> None:
        self.statistics.left_out += 1

    def _triage(self, worker: Worker, server: TargetServer) -> Triage:
        """Triage with this worker, and with helpers like it where these do not have to load the target anew."""
        helpers = WorkerTeam(tuple(worker.clone() for _ in range(self.helpers)), lambda: not server.given_up)
        return Triage(self.target, worker, SAMPLED_ORACLES, helpers=helpers)

    def _profile(self, pool: Pool, triage: Triage, queue: TriageQueue, server: TargetServer) -> dict[str, float]:
        """Where the time went: seconds by activity."""
        waited = pool.backoff.seconds + triage.backoff.seconds
        profile = pool.profile | {"shrinking": queue.seconds_handled, WAITS: waited}
        profile["generation"] += self._seconds_drawing
        profile["starting"] += server.seconds_loading
        return profile

    def _note_lack(self, lack: str) -> None:
        """Says once what the machine lacks: without it the run may seem to do nothing."""
        if not self.lack:
            self.watcher.on_lack(lack)
        self.lack = lack

    @property
    def _takes_turns(self) -> bool:
        if self.in_turn is not None:
            return self.in_turn
        return self.options.max_findings is not None

    def _order(self, known: list[Bug], findings: FindingHandler, deadline: Deadline) -> TriageOrder:
        """In which order triage takes what disagrees: where no time may end, that of the cases, on any machine.

        Else bugs are graded when nothing new waits, and at the end of the run.
        """
        limit = self.options.time_limit
        if limit is None:
            return InOrder()
        order = TriagePriority(
            self.target, deadline, reserve=GRADING_SHARE * limit, shows_usually=findings.triage.shows_with_usual_inputs,
            rules_out=findings.attribution.rules_out, seconds_to_ask=ASKING_SHARE * limit,
        )  # fmt: skip
        order.know(known)
        return order

    @property
    def _derives_rejects(self) -> bool:
        """Whether invalid inputs are tried: of a planted bug it is known what is wrong."""
        return self.options.derived_rejects and not self.options.planted

    @property
    def worker_config(self) -> WorkerConfig:
        """How the workers are set up."""
        options = self.options
        return WorkerConfig(options.target, options.planted, self.backend, options.engine not in UNGUIDED_ENGINES)

    def make_handler(self, triage: Triage, known: list[Bug], deadline: Deadline) -> FindingHandler:
        """The handler of what disagrees, which knows these bugs."""
        return FindingHandler(
            self.options, self.target, self.worker_config, self.folder, self.versions, triage, self.watcher,
            self.process_start, self.keep_smaller_duplicate, self.file_lock, self.with_cross_checks, deadline, known,
        )  # fmt: skip

    def make_scheduler(self, deadline: Deadline) -> EngineScheduler:
        """The scheduler of the engines that propose plans."""
        options, planted = self.options, self.options.planted
        launcher = load_planted(self.target, planted)[1] if planted else self.target.launcher
        numbers = tuple(find_numbers(launcher))

        def start_atheris(folder: Path) -> Worker:
            """The process of the engine atheris, with its inputs in a folder."""
            # What libFuzzer had kept ended with an earlier slice: this one's search is another one.
            seed = options.seed + options.first_plan
            config = AtherisConfig(self.worker_config, seed, folder, numbers)
            return Worker(ATHERIS_HANDLER, config, options.worker_memory, self.target.timeout, deadline=deadline)

        return make_scheduler(
            options.engine, self.target, self.backend, options.seed, numbers, start_atheris, options.first_plan,
            launch_space(launcher), options.first_replicas, options.time_limit is not None,
        )  # fmt: skip

    def _single_cases(self) -> list[tuple[Case, tuple[str, ...]]]:
        """Suspects and seed cases, which run before all plans, with the oracles that each is sampled for."""
        seeds = seed_cases(self.target) if self.options.first_plan == 0 else ()
        cases = [*self.suspects, *seeds]
        for case in cases:
            corpus.check_size(case)
        return [(case, self.suspect_oracles) for case in cases]

    def _announce(self, groups: Iterator[ReplicaGroup | None]) -> Iterator[ReplicaGroup | None]:
        start = time.perf_counter()
        for group in groups:
            if group is not None:
                self._seconds_drawing += time.perf_counter() - start
                self.watcher.on_group_start(group)
            yield group
            start = time.perf_counter()

    def _learn(
        self,
        group: ReplicaGroup,
        reports: Sequence[Report],
        findings: FindingHandler,
        scheduler: EngineScheduler,
        queue: TriageQueue,
        history: History,
    ) -> None:
        """Takes in the reports on a group, up to that with which enough is found; `history` is its worker's."""
        waited, last = queue.seconds_waited, len(reports) - 1
        # Replicas differ in their seeds only; making the case of each would take longer than what is learnt of it.
        begin = 0
        for number in [number for number, report in enumerate(reports) if report.findings]:
            self.statistics.learn(group.plan, *reports[begin : number + 1])
            begin = number + 1
            if number:
                history.add(group.plan, number - 1)
            case = group.plan.replica(number)
            disagreements = self.patterns.mark_unlike(reports[number].findings)
            queue.put(group.first + number, case, disagreements, history.cases)
            if findings.is_enough:
                last = number
                break
        else:
            self.statistics.learn(group.plan, *reports[begin:])
        if group.plan.elements() <= LARGE and is_usual(group.plan, self.target):
            self.usual_cases += sum(FAULT.name in report.examined for report in reports)
        self.last_rejection = reports[last].outcome
        history.add(group.plan, last)
        scheduler.learn(group.plan, reports[: last + 1], queue.seconds_waited - waited)

    def _result(
        self,
        findings: FindingHandler,
        seconds: float,
        interrupted: bool,
        scheduler: EngineScheduler,
        calls_cut_off: int,
    ) -> Result:
        statistics = self.statistics
        if statistics.all_rejected and not self.allow_all_rejected:
            refused = f"every one of {statistics.cases} cases was refused"
            raise TargetError(f"target {self.target.name!r}: {refused}, the last one: {self.last_rejection}")
        if 0 < statistics.cases == statistics.not_run and not self.allow_all_rejected:
            raise UsageError(f"not one of {statistics.cases} cases could run, the last one: {self.last_rejection}")
        if not (statistics.cases or interrupted or self.allow_all_rejected):
            raise UsageError(f"the time ended before a case could run: {self.lack}" if self.lack else NOTHING_RAN)
        engines = scheduler.statistics()
        return Result(
            self.options, self.backend, statistics, findings.hit_bugs, seconds,
            interrupted, findings.unconfirmed, calls_cut_off, findings.cut_off, engines,
            grid_order_only=self.orders.grid_only, lack=self.lack, unexplained_cut_off=findings.unexplained_cut_off,
        )  # fmt: skip


def compiling_share(profile: Mapping[str, float]) -> float:
    """Of the time in which workers were at work, the share of compiling."""
    return profile["compile"] / max(sum(profile.values()) - profile["waiting"], 1e-9)
