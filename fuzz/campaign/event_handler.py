"""Applies the events of hosts to the workers and the state of a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.campaign import protocol
from fuzz.campaign.planner import RequestPlanner, WorkerSlot
from fuzz.campaign.protocol import Event, Replay
from fuzz.campaign.state import CampaignState, RunningSlice
from fuzz.errors import CorpusError
from fuzz.report.notify import finding_document


@dataclass
class EventHandler:
    """Handles the events of a campaign's hosts. While the campaign is `stopping`, it ends its hosts itself.

    `fatal_error` says why nothing can be kept any more, if so.
    """

    state: CampaignState
    planner: RequestPlanner
    notify: Callable[[dict[str, object]], None]
    stopping: bool = False
    fatal_error: str = ""

    def handle(self, slot: WorkerSlot, event: Event) -> None:
        """Applies one event; those that are not listed are only signs of life."""
        slot.last_event, slot.last_event_wall = self.state.clock.monotonic(), self.state.clock.wall()
        slot.events += 1
        match event:
            case protocol.Ready():
                slot.state, slot.failed_starts, slot.reported_waiting = "idle", 0, False
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
            case protocol.ReplayDone():
                slot.request = None
            case protocol.Refused(why):
                self.state.give_up(slot.job, why)
                slot.slice, slot.request = None, None
            case protocol.Unwritable(why):
                self.fatal_error = self.fatal_error or why
            case protocol.HostDied(why):
                self._end_host(slot, why)
            case protocol.Failed(why):
                self.state.say(f"{self.state.jobs[slot.job].target}: internal error: {why}")
                if slot.slice:
                    self.record_suspects(slot.job)
                    self.planner.end_slice(slot, died=True)
            case protocol.Progress() | protocol.Hit() if slot.slice:
                self._update_slice(slot, slot.slice, event)

    def _update_slice(self, slot: WorkerSlot, running: RunningSlice, event: protocol.Progress | protocol.Hit) -> None:
        """Takes up where a slice stands, and what it has found."""
        match event:
            case protocol.EntrySaved():
                if new := self.state.add_saved(running, event):
                    self.state.say(f"new finding: {event.path}")
                    job = self.state.jobs[slot.job]
                    finding = {**event.finding, "id": new, "path": event.path}
                    names = job.target, job.planted or None, event.backend, job.seed, self.state.campaign.name
                    self.notify(finding_document(finding, *names))
            case protocol.Hit():
                self.state.add_hit(running, event)
            case protocol.Progress():
                self.state.update(running, event)
                if isinstance(event, protocol.SliceDone):
                    self.record_suspects(slot.job)
                    self.planner.end_slice(slot, rejection=event.rejection)

    def _end_host(self, slot: WorkerSlot, why: str) -> None:
        """The slice is lost from where it last reported to stand; what ran is run first by the next one."""
        if slot.state == "starting":
            slot.failed_starts, slot.last_failure = slot.failed_starts + 1, why
        if isinstance(slot.request, Replay):
            self.planner.replay_rest(slot)
        elif slot.slice:
            target, count = self.state.jobs[slot.job].target, self.record_suspects(slot.job)
            if not self.stopping:
                self.state.say(f"{target}: worker {slot.number} ended ({why}); {count} cases are suspects")
            self.planner.end_slice(slot, died=True)
        slot.state, slot.request, slot.slice = "gone", None, None

    def record_suspects(self, index: int) -> int:
        """Turns what ran in a job's slice into suspects; where they cannot be written, the campaign stops."""
        try:
            return self.state.record_suspects(index, blamed=not self.stopping)
        except CorpusError as error:
            self.fatal_error = self.fatal_error or str(error)
            return 0
