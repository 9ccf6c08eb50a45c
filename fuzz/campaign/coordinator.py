"""Runs the loop of a campaign: gives requests to hosts, applies their events, and ends when the budget does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fuzz.campaign import protocol
from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.hosts.hosts import Hosts
from fuzz.campaign.notices import Notices
from fuzz.campaign.protocol import HostEvent, Replay, Slice
from fuzz.campaign.request_scheduler import MOST_DOUBLINGS, REPLAYED_TOGETHER, RequestScheduler, WorkerSlot
from fuzz.campaign.state import NO_CASE_RAN, CampaignState, RunningSlice
from fuzz.campaign.store import Heartbeat
from fuzz.clock import boot_id
from fuzz.errors import CorpusError, FuzzError, UsageError
from fuzz.report.notify import event_document

HEARTBEAT_SECONDS = 5.0
"""Seconds between two heartbeats in the store."""
POLL_SECONDS = 0.5
"""Seconds that events are waited for, at most."""
PROGRESS_SECONDS = 10.0
"""Seconds between two lines of progress."""
SILENCE_SECONDS = 300.0
"""Seconds without any sign of life after which a host is ended."""
SHRINK_SECONDS = 900.0
"""Seconds that a slice may take beyond twice its time, for shrinking, before it is ended."""
FAILED_STARTS = 8
"""Starts of a host in a row that fail, after which the campaign ends."""
STOP_SECONDS = 60.0
"""Seconds that hosts have to end their slices in an orderly way."""


@dataclass
class Coordinator:
    """Runs a campaign. `notify` sends a document, such as that of a new finding, to the command that the user named.

    `stopping` is whether it ends its hosts itself, `fatal_error` why results can no longer be saved, if they cannot.
    """

    config: CampaignConfig
    state: CampaignState
    hosts: Hosts
    notify: Callable[[dict[str, object]], None]
    stopping: bool = False
    fatal_error: str = ""

    def __post_init__(self) -> None:
        self.scheduler = RequestScheduler(self.config, self.state)
        self.slots = [WorkerSlot(number) for number in range(self.config.workers)]
        self.notices = Notices(self.state.folder / "notices", self.notify)
        self._last_heartbeat, self._last_progress = -HEARTBEAT_SECONDS, self.state.clock.monotonic()

    def run(self) -> str:
        """Runs until the budget ends, Ctrl-C, or an error; returns ``finished`` or ``stopped``."""
        self.state.start()
        outcome = "finished"
        try:
            self.notices.send_rest()
            self.scheduler.queue_replays()
            while not (self._is_over() or self.fatal_error):
                self._assign()
                self._collect()
                self._watch()
            self._finish_slices()
        except KeyboardInterrupt:
            outcome = "stopped"
        except OSError as error:
            self.fatal_error = f"{error.filename or 'a file'}: {error.strerror}"
        except BaseException:
            self.hosts.close()
            self._close("failed")
            raise
        self._stop()
        self._close("stopped" if self.fatal_error else outcome)
        if self.fatal_error:
            raise CorpusError(f"{self.fatal_error}; the campaign has stopped, --resume goes on")
        return outcome

    @property
    def _busy(self) -> list[WorkerSlot]:
        return [slot for slot in self.slots if slot.state == "busy"]

    def _is_over(self) -> bool:
        state, budget, elapsed = self.state, self.config.budget, self.state.elapsed
        if all(job.note for job in state.jobs) and not self._busy:
            if not state.cases:
                raise UsageError(state.jobs[0].note)
            return True
        limits = (budget.time, elapsed), (budget.cases, state.cases), (budget.quiet, elapsed - state.last_new)
        self.scheduler.ending |= any(limit is not None and used >= limit for limit, used in limits)
        # Suspects of the last slices still run: each may be a finding that was not saved yet.
        waits = any(slot.only_suspects for slot in self._busy) or bool(state.urgent_jobs())
        waits = waits or bool(self.scheduler.unshrunk_jobs(self.slots))
        return self.scheduler.ending and not waits

    def _assign(self) -> None:
        for slot in self.slots:
            if slot.state == "gone":
                if slot.failed_starts >= FAILED_STARTS:
                    why = f"ended {FAILED_STARTS} times before it was ready: {slot.last_failure}"
                    raise FuzzError(f"worker {slot.number} {why}")
                self.hosts.start(slot.number)
                self._begin(slot, "starting")
            elif slot.state == "idle":
                request = self.scheduler.assign(slot, self.slots)
                if request is not None:
                    self._begin(slot, "busy")
                    self.hosts.send(slot.number, request)

    def _begin(self, slot: WorkerSlot, state: str) -> None:
        slot.state, slot.began = state, self.state.clock.monotonic()
        slot.last_event, slot.last_event_wall = slot.began, self.state.clock.wall()

    def _collect(self) -> None:
        for number, event in self.hosts.receive(POLL_SECONDS):
            self._handle(self.slots[number], event)

    def _watch(self) -> None:
        """Ends hosts that hang, and reports where the campaign stands, as often as each is due."""
        now = self.state.clock.monotonic()
        for slot in self.slots:
            slow = slot.state == "busy" and now - slot.began > _time_limit(slot)
            if slow or slot.state != "gone" and now - slot.last_event > SILENCE_SECONDS:
                why = "takes too long for its request" if slow else f"has sent nothing for {SILENCE_SECONDS:.0f} s"
                self.state.say(f"worker {slot.number} {why}; it is ended")
                self.hosts.kill(slot.number)
                slot.began = slot.last_event = now
        if now - self._last_heartbeat > HEARTBEAT_SECONDS:
            self._last_heartbeat = now
            self._save_heartbeats()
            self.state.save_campaign("running")
        if now - self._last_progress > PROGRESS_SECONDS:
            self._last_progress = now
            state, elapsed = self.state, self.state.elapsed
            rate, findings = state.cases / max(elapsed, 1e-9), f"{len(state.new)} new, {len(state.known)} known"
            state.say(f"{elapsed:8.1f} s  {state.cases} cases  {rate:.0f} cases/s  findings {findings}")

    def _save_heartbeats(self) -> None:
        host = socket.gethostname()
        for slot in self.slots:
            target = self.state.jobs[slot.job].target if slot.job >= 0 else ""
            name, pid = f"{host}/{slot.number}", self.hosts.pid(slot.number)
            times = slot.events, slot.last_event_wall, slot.last_event, boot_id()
            self.state.recorder.save(Heartbeat(self.state.campaign.id, name, host, pid, slot.state, target, *times))

    # Events.

    def _handle(self, slot: WorkerSlot, event: HostEvent) -> None:
        """Applies one event; those that are not listed are only signs of life."""
        slot.last_event, slot.last_event_wall = self.state.clock.monotonic(), self.state.clock.wall()
        slot.events += 1
        match event:
            case protocol.Ready():
                slot.state, slot.request, slot.failed_starts, slot.reported_waiting = "idle", None, 0, False
            case protocol.Waiting():
                if not slot.reported_waiting:
                    self.state.say(f"worker {slot.number} waits for a place in the cluster")
                slot.reported_waiting = True
            case protocol.Started(possible):
                self.state.jobs[slot.job] = replace(self.state.jobs[slot.job], possible=possible)
            case protocol.SuspectCleared(path):
                Path(path).unlink(missing_ok=True)
            case protocol.CoverageMeasured(report):
                self.state.save_coverage(slot.job, report)
            case protocol.Replaying(path):
                slot.unreplayed.remove(path)
            case protocol.Replayed():
                self.state.add_replay(slot.job, event)
            case protocol.Refused(why):
                self.state.give_up(slot.job, why)
                self._notify_of_rest(slot)
                slot.slice, slot.request = None, None
            case protocol.Unwritable(why):
                self.fatal_error = self.fatal_error or why
            case protocol.HostDied(why):
                self._end_host(slot, why)
            case protocol.Failed(why):
                self.state.say(f"{self.state.jobs[slot.job].target}: {why}")
                if isinstance(slot.request, Replay):
                    self.scheduler.replay_rest(slot, why)
                elif slot.slice:
                    self._notify_of_rest(slot)
                    self._record_suspects(slot.job)
                    self.scheduler.end_slice(slot, died=True)
            case protocol.Progress() | protocol.Hit() | protocol.FindingTriaged() if slot.slice:
                self._update_slice(slot, slot.slice, event)

    def _notify_of(self, slot: WorkerSlot, name: str) -> None:
        """Notifies the user's command of a new finding, once."""
        if name in slot.unnotified:
            slot.unnotified.remove(name)
            self.notices.send(name)

    def _keep_notice(self, slot: WorkerSlot, name: str, event: protocol.EntrySaved) -> None:
        """Takes up what is to be said of a new finding once it is triaged."""
        job, finding = self.state.jobs[slot.job], {**event.finding, "id": name, "path": event.path}
        run = {"target": job.target, "planted": job.planted or None, "backend": event.backend, "seed": job.seed}
        slot.unnotified.append(name)
        self.notices.keep(name, event_document("finding", campaign=self.state.campaign.name, **run, finding=finding))

    def _notify_of_rest(self, slot: WorkerSlot) -> None:
        """Notifies of the new findings of a slice that had no time to grade them."""
        for name in list(slot.unnotified):
            self._notify_of(slot, name)

    def _update_slice(
        self, slot: WorkerSlot, running: RunningSlice, event: protocol.Progress | protocol.Hit | protocol.FindingTriaged
    ) -> None:
        """Applies the progress and the findings of a slice."""
        match event:
            case protocol.EntrySaved():
                self._add_saved(slot, running, event)
            case protocol.Hit():
                self.state.add_hit(running, event)
            case protocol.FindingTriaged(name):
                self._notify_of(slot, name)
            case protocol.Progress():
                self.state.update(running, event)
                if isinstance(event, protocol.SliceDone):
                    self._notify_of_rest(slot)
                    if event.grid_order_only:
                        self.scheduler.grid_order_only.add(slot.job)
                    # Nothing ended it before its time: one is to blame only where a slice cannot be longer.
                    self._record_suspects(slot.job, blamed=self.scheduler.unsettled_slices[slot.job] >= MOST_DOUBLINGS)
                    self.scheduler.end_slice(slot, rejection=event.rejection)

    def _add_saved(self, slot: WorkerSlot, running: RunningSlice, event: protocol.EntrySaved) -> None:
        """Applies that an entry was saved. Nothing is notified of what it replaces, in whichever slice that was new."""
        name, replaced = Path(event.path).stem, Path(event.replaced).stem
        waiting = {one for one in (name, replaced) for other in self.slots if one in other.unnotified}
        is_sent = name in self.state.new and name not in waiting
        if new := self.state.add_saved(running, event):
            self.state.say(f"new finding: {event.path}")
        for other in self.slots:
            other.unnotified = [one for one in other.unnotified if one not in waiting]
        if (new or waiting) and not is_sent and name in self.state.new:
            self._keep_notice(slot, name, event)
            waiting.discard(name)
        for one in waiting:
            self.notices.drop(one)

    def _end_host(self, slot: WorkerSlot, why: str) -> None:
        """Ends a slice with its host. What ran since its last progress runs first in the next slice of the job."""
        if slot.state == "starting":
            slot.failed_starts, slot.last_failure = slot.failed_starts + 1, why
        if isinstance(slot.request, Replay):
            self.scheduler.replay_rest(slot, f"the worker ended ({why})")
        elif slot.slice:
            self._notify_of_rest(slot)
            target, count = self.state.jobs[slot.job].target, self._record_suspects(slot.job)
            if not self.stopping:
                self.state.say(f"{target}: worker {slot.number} ended ({why}); suspect cases: {count}")
            self.scheduler.end_slice(slot, died=True)
        slot.state, slot.request, slot.slice = "gone", None, None

    def _record_suspects(self, index: int, *, blamed: bool = True) -> int:
        """Turns what ran in a job's slice into suspects; where they cannot be written, the campaign stops."""
        try:
            return self.state.record_suspects(index, blamed=blamed and not self.stopping)
        except CorpusError as error:
            self.fatal_error = self.fatal_error or str(error)
            return 0

    # The end.

    def _finish_slices(self) -> None:
        """Shrinking may go on for half of a slice's time beyond the budget."""
        until = self.state.clock.monotonic() + self.config.slice / 2
        while self._busy and self.state.clock.monotonic() < until and not self.fatal_error:
            self._collect()

    def _stop(self) -> None:
        """Ends slices in an orderly way, so that what is being shrunk is saved as it is; then the hosts."""
        self.stopping = True
        until = self.state.clock.monotonic() + STOP_SECONDS
        for slot in self._busy:
            self.hosts.interrupt(slot.number)
        with suppress(KeyboardInterrupt):
            while self._busy and self.state.clock.monotonic() < until:
                self._collect()
        self.hosts.close()
        for index in range(len(self.state.jobs)):
            self._record_suspects(index)

    def _close(self, outcome: str) -> None:
        # What cannot be read now is sent when the campaign goes on.
        with suppress(OSError):
            self.notices.send_rest()
        recorder, campaign = self.state.recorder, self.state.campaign.id
        for slot in self.slots:
            name = f"{socket.gethostname()}/{slot.number}"
            remove = partial(self.state.store.remove, Heartbeat, campaign=campaign, worker=name)
            recorder.put(("heartbeat", campaign, name), remove)
        for index, job in enumerate(self.state.jobs):
            if outcome == "finished" and not job.cases and not job.note:
                self.state.give_up(index, NO_CASE_RAN)
            self.state.save_job(index)
        self.state.save_campaign(outcome, self.fatal_error)
        if not recorder.flush(now=True):
            waiting = len(recorder.waiting)
            lost = f"{waiting} writes never reached the store; the findings are in the corpus: fuzz store rebuild"
            self.state.say(lost)


def _time_limit(slot: WorkerSlot) -> float:
    """Seconds that a worker may take for its request."""
    if isinstance(slot.request, Slice):
        return 2 * slot.request.seconds + SHRINK_SECONDS
    return SHRINK_SECONDS * REPLAYED_TOGETHER
