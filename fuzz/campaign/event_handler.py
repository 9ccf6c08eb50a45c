"""Applies the events of hosts to the workers and the state of a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.campaign import protocol
from fuzz.campaign.planner import RequestPlanner, WorkerSlot
from fuzz.campaign.protocol import Event, Replay
from fuzz.campaign.state import CampaignState
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
        slot.last_event, slot.last_event_wall = self.state.clock.monotonic(), self.state.clock.wall()
        slot.events += 1
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, slot, event)

    def on_ready(self, slot: WorkerSlot, event: protocol.Ready) -> None:
        slot.state, slot.failed_starts, slot.reported_waiting = "idle", 0, False

    def on_waiting(self, slot: WorkerSlot, event: protocol.Waiting) -> None:
        if not slot.reported_waiting:
            self.state.say(f"worker {slot.number} waits for a place in the cluster")
        slot.reported_waiting = True

    def on_started(self, slot: WorkerSlot, event: protocol.Started) -> None:
        self.state.jobs[slot.job] = replace(self.state.jobs[slot.job], possible=event.possible)

    def on_progress(self, slot: WorkerSlot, event: protocol.Progress) -> None:
        if slot.slice:
            self.state.update(slot.slice, event)

    def on_hit(self, slot: WorkerSlot, event: protocol.Hit) -> None:
        if slot.slice:
            self.state.add_hit(slot.slice, event)

    def on_saved(self, slot: WorkerSlot, event: protocol.EntrySaved) -> None:
        if not slot.slice:
            return
        new = self.state.add_saved(slot.slice, event)
        if new:
            self.state.say(f"new finding: {event.path}")
            job = self.state.jobs[slot.job]
            finding = {**event.finding, "id": new, "path": event.path}
            names = job.target, job.planted or None, event.backend, job.seed, self.state.campaign.name
            self.notify(finding_document(finding, *names))

    def on_suspect_cleared(self, slot: WorkerSlot, event: protocol.SuspectCleared) -> None:
        Path(event.path).unlink(missing_ok=True)

    def on_slice_done(self, slot: WorkerSlot, event: protocol.SliceDone) -> None:
        if slot.slice:
            self.state.update(slot.slice, event)
            self.record_suspects(slot.job)
            self.planner.end_slice(slot, rejection=event.rejection)

    def on_replaying(self, slot: WorkerSlot, event: protocol.Replaying) -> None:
        slot.unreplayed.remove(event.path)

    def on_replayed(self, slot: WorkerSlot, event: protocol.Replayed) -> None:
        self.state.add_replay(slot.job, event)

    def on_replay_done(self, slot: WorkerSlot, event: protocol.ReplayDone) -> None:
        slot.request = None

    def on_refused(self, slot: WorkerSlot, event: protocol.Refused) -> None:
        self.state.give_up(slot.job, event.why)
        slot.slice, slot.request = None, None

    def on_unwritable(self, slot: WorkerSlot, event: protocol.Unwritable) -> None:
        self.fatal_error = self.fatal_error or event.why

    def on_failed(self, slot: WorkerSlot, event: protocol.Failed) -> None:
        self.state.say(f"{self.state.jobs[slot.job].target}: internal error: {event.why}")
        if slot.slice:
            self.record_suspects(slot.job)
            self.planner.end_slice(slot, died=True)

    def on_died(self, slot: WorkerSlot, event: protocol.HostDied) -> None:
        """The slice is lost from where it last reported to stand; what ran is run first by the next one."""
        if slot.state == "starting":
            slot.failed_starts, slot.last_failure = slot.failed_starts + 1, event.why
        if isinstance(slot.request, Replay):
            self.planner.replay_rest(slot)
        elif slot.slice:
            target, count = self.state.jobs[slot.job].target, self.record_suspects(slot.job)
            if not self.stopping:
                self.state.say(f"{target}: worker {slot.number} ended ({event.why}); {count} cases are suspects")
            self.planner.end_slice(slot, died=True)
        slot.state, slot.request, slot.slice = "gone", None, None

    def record_suspects(self, index: int) -> int:
        """Turns what ran in a job's slice into suspects; where they cannot be written, the campaign stops."""
        try:
            return self.state.record_suspects(index, blamed=not self.stopping)
        except CorpusError as error:
            self.fatal_error = self.fatal_error or str(error)
            return 0


HANDLERS: dict[type, Callable[[EventHandler, WorkerSlot, Any], None]] = {
    protocol.Ready: EventHandler.on_ready,
    protocol.Waiting: EventHandler.on_waiting,
    protocol.Started: EventHandler.on_started,
    protocol.Progress: EventHandler.on_progress,
    protocol.Hit: EventHandler.on_hit,
    protocol.EntrySaved: EventHandler.on_saved,
    protocol.SuspectCleared: EventHandler.on_suspect_cleared,
    protocol.SliceDone: EventHandler.on_slice_done,
    protocol.Replaying: EventHandler.on_replaying,
    protocol.Replayed: EventHandler.on_replayed,
    protocol.ReplayDone: EventHandler.on_replay_done,
    protocol.Refused: EventHandler.on_refused,
    protocol.Unwritable: EventHandler.on_unwritable,
    protocol.Failed: EventHandler.on_failed,
    protocol.HostDied: EventHandler.on_died,
}
"""What is done on each event; the others are only signs of life."""
