"""Decides what each worker of a campaign does next: entries to replay, or a slice of a job."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.config import MAX_COVERAGE_CASES, CampaignConfig
from fuzz.campaign.jobs import next_job
from fuzz.campaign.protocol import Replay, Request, Slice
from fuzz.campaign.state import CampaignState, RunningSlice, tag, target_name
from fuzz.campaign.store import Job
from fuzz.errors import CorpusError
from fuzz.model.entry import Entry
from fuzz.triage.cross_check import CROSS_CHECK
from fuzz.triage.severity import GRADING
from fuzz.worker.system import total_memory

REPLAYED_TOGETHER = 20
"""Entries in one request to replay."""
FEWEST_CASES = 20
"""Cases of a slice, at least, where a number of cases is the budget."""
EMPTY_SLICES = 8
"""Slices of a job in a row that end without running a case, after which it is given up."""
MOST_DOUBLINGS = 5
"""Times that a job's slice is doubled, at most, because the last one ended before what disagreed was confirmed."""
SHORTEST_PAUSE, LONGEST_PAUSE = 30.0, 1800.0
"""Seconds that a job waits after a slice whose cases were all refused: twice as long after each such slice in a row."""


@dataclass
class WorkerSlot:
    """One worker of a campaign: its host, and what that works on. `state` is gone, starting, idle or busy.

    `job` is an index, -1 before there is one. `unreplayed` are entries of its request that have not been started,
    `unnotified` the names of its new findings that are not triaged yet.
    """

    number: int
    state: str = "gone"
    job: int = -1
    request: Request | None = None
    slice: RunningSlice | None = None
    unreplayed: list[str] = field(default_factory=list)
    unnotified: list[str] = field(default_factory=list)
    began: float = 0.0
    last_event: float = 0.0
    last_event_wall: float = 0.0
    events: int = 0
    failed_starts: int = 0
    last_failure: str = ""
    only_suspects: bool = False
    reported_waiting: bool = False


@dataclass
class RequestScheduler:
    """Schedules the requests of a campaign. While it is `ending`, only suspects run, and what was not shrunk in time.

    `unsettled_slices` counts a job's slices in a row that left something in question, each twice as long as the last.
    `grid_order_only` are the jobs whose slices have learnt that programs wait for earlier ones, which takes time.
    """

    config: CampaignConfig
    state: CampaignState
    replays: deque[tuple[int, Replay]] = field(default_factory=deque)
    ending: bool = False
    _empty_slices: Counter[int] = field(default_factory=Counter)
    _rejected_slices: Counter[int] = field(default_factory=Counter)
    unsettled_slices: Counter[int] = field(default_factory=Counter)
    grid_order_only: set[int] = field(default_factory=set)
    _paused_until: dict[int, float] = field(default_factory=dict)
    _unshrunk: set[int] | None = None

    def queue_replays(self) -> None:
        """Queues former findings, those of each target once for each backend."""
        done: set[tuple[str, str, str]] = set()
        for index, job in enumerate(self.state.jobs):
            folder = self.state.corpus / target_name(job)
            if (job.target, job.planted, job.backend) in done or not folder.is_dir():
                continue
            done.add((job.target, job.planted, job.backend))
            entries = readable_entries(folder, job.planted)
            paths = [str(path) for path, entry in entries if entry.finding is not None and entry.status != "accepted"]
            for first in range(0, len(paths), REPLAYED_TOGETHER):
                replay = Replay(job.target, job.backend, tuple(paths[first : first + REPLAYED_TOGETHER]))
                self.replays.append((index, replay))

    def assign(self, slot: WorkerSlot, slots: Sequence[WorkerSlot]) -> Request | None:
        """Gives an idle worker its next request, or nothing where there is none now."""
        if self.replays:
            slot.job, replay = self.replays.popleft()
            slot.request, slot.unreplayed, slot.slice = replay, list(replay.paths), None
            return replay
        urgent = self.state.urgent_jobs() | self.unshrunk_jobs(slots)
        busy = {other.job for other in slots if other.state == "busy" and other.slice}
        paused = {index for index, until in self._paused_until.items() if until > self.state.elapsed} - urgent
        index = next_job(self.state.jobs, busy | paused, urgent)
        cases = None if self.ending else self._cases_left(slots)
        if index is None or cases == 0 or self.ending and index not in urgent:
            return None
        if self._unshrunk is not None:
            self._unshrunk.discard(index)
        slot.job, slot.slice = index, RunningSlice(index, self.state.jobs[index])
        slot.request, slot.only_suspects = self._slice(index, cases), self.ending
        return slot.request

    def unshrunk_jobs(self, slots: Sequence[WorkerSlot]) -> set[int]:
        """At the end the jobs that get a last slice: an entry is not shrunk to the end, as its host was ended.

        Unshrunk it may stand for the same bug as another entry. What a slice that still runs shrinks is left to that.
        """
        if not self.ending:
            return set()
        if self._unshrunk is None:
            running = {self.state.jobs[slot.job].target for slot in slots if slot.state == "busy" and slot.slice}
            first: dict[tuple[str, str], int] = {}
            for index, job in enumerate(self.state.jobs):
                if job.target not in running and not job.note:
                    first.setdefault((job.target, job.planted), index)
            self._unshrunk = {index for index in first.values() if self._has_unshrunk(self.state.jobs[index])}
        return {index for index in self._unshrunk if not self.state.jobs[index].note}

    def _has_unshrunk(self, job: Job) -> bool:
        folder = self.state.corpus / target_name(job)
        entries = readable_entries(folder, job.planted) if folder.is_dir() else ()
        steps = {entry.provenance.cut_off for _, entry in entries if entry.finding and entry.status == "open"}
        return bool(steps - {"", GRADING, CROSS_CHECK})

    def _cases_left(self, slots: Sequence[WorkerSlot]) -> int | None:
        """The cases that one more slice may run, or None where only time counts."""
        if self.config.budget.cases is None:
            return None
        promised = sum(
            slot.slice.before.cases + (slot.request.cases or 0) - self.state.jobs[slot.job].cases
            for slot in slots
            if slot.state == "busy" and slot.slice and isinstance(slot.request, Slice)
        )
        left = self.config.budget.cases - self.state.cases - promised
        active = sum(not job.note for job in self.state.jobs)
        return max(min(left, max(-(-left // max(active, 1)), FEWEST_CASES)), 0)

    def _slice(self, index: int, cases: int | None) -> Slice:
        job = self.state.jobs[index]
        # Where a slice ended before what disagreed was confirmed, the next one has twice the time, and so on.
        seconds = self.config.slice * 2 ** min(self.unsettled_slices[index], MOST_DOUBLINGS)
        # What is in question at the end has a whole slice, however little is left.
        if self.config.budget.time is not None and not self.ending:
            seconds = max(min(seconds, self.config.budget.time - self.state.elapsed), 1.0)
        memory = self.config.memory or max(total_memory() // (2 * self.config.workers), 1 << 30)
        suspects = self.state.suspects.select(tag(job))
        # Further cases would leave more in question.
        only_suspects = self.ending or bool(suspects and self.unsettled_slices[index])
        return Slice(
            job.target, job.backend, job.planted, job.engine, job.seed, job.plan, job.cases, seconds,
            max(len(suspects), 1) if only_suspects else cases,
            str(self.state.corpus), str(self.state.journal(index)), memory, suspects,
            0 if self.ending or job.planted else coverage_cases(self.config.coverage, job.slices + 1),
            str(self.state.saved(index)), index in self.grid_order_only,
        )  # fmt: skip

    def end_slice(self, slot: WorkerSlot, *, died: bool = False, rejection: str = "") -> None:
        """Closes a worker's slice. A job whose slices run nothing is given up; one whose cases are refused pauses.

        What refuses every case may lie outside the target, such as a neighbour that holds the GPU's memory, so that
        the job is tried again.
        """
        assert slot.slice is not None
        index, ran = slot.job, self.state.jobs[slot.job].cases > slot.slice.before.cases
        self.state.end_slice(slot.slice, died=died)
        slot.slice, slot.request = None, None
        unsettled = index in self.state.urgent_jobs()
        self.unsettled_slices[index] = self.unsettled_slices[index] + 1 if unsettled else 0
        self._empty_slices[index] = 0 if ran else self._empty_slices[index] + 1
        if self._empty_slices[index] >= EMPTY_SLICES:
            self.state.give_up(index, f"{EMPTY_SLICES} slices in a row ended without a case")
        if rejection:
            self._pause(index, rejection)
        elif ran:
            self._rejected_slices[index] = 0

    def _pause(self, index: int, rejection: str) -> None:
        pause = min(SHORTEST_PAUSE * 2 ** self._rejected_slices[index], LONGEST_PAUSE)
        self._rejected_slices[index] += 1
        self._paused_until[index] = self.state.elapsed + pause
        target = self.state.jobs[index].target
        self.state.say(f"{target}: every case was refused, the last one: {rejection}; tried again in {pause:.0f} s")

    def replay_rest(self, slot: WorkerSlot, why: str) -> None:
        """Queues the entries again that a host did not start to replay, whose request ended early, and says why."""
        assert isinstance(slot.request, Replay)
        started = [path for path in slot.request.paths if path not in slot.unreplayed]
        for path in started[-1:]:
            self.state.say(f"{path} cannot be replayed: {why}")
        if slot.unreplayed:
            self.replays.append((slot.job, replace(slot.request, paths=tuple(slot.unreplayed))))
        slot.request = None


def coverage_cases(first: int, number: int) -> int:
    """How many cases measure the coverage at the end of a job's slice of that number: `first` of them after the first.

    Twice as many after twice as many slices, and none in between, so that a trend costs no more than its last point.
    """
    return min(first * number, MAX_COVERAGE_CASES) if number & (number - 1) == 0 else 0


def readable_entries(folder: Path, planted: str) -> Iterator[tuple[Path, Entry]]:
    """The entries of a folder that a planted bug, or no bug, was found by, but those that cannot be read."""
    for path in corpus.entry_files([folder]):
        try:
            entry = corpus.read(path)
        except CorpusError:
            continue
        if entry.planted == planted:
            yield path, entry
