"""Runs the slices of a campaign, one after another: ``python -m fuzz.campaign.hosts.host_process PIPE [FOLDER]``.

It receives requests and sends events by a pipe, whose descriptor it inherits. It ends with its campaign, and its
workers end with it; whatever ends it costs the slice that runs, and no other. With a folder it is a remote host, which
sees no file of its campaign's and keeps its own there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.campaign import protocol
from fuzz.campaign.hosts.host_channel import HostChannel
from fuzz.campaign.journal import Journal, note_saved
from fuzz.campaign.protocol import EntrySaved, Replay, Request, Slice
from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError, WorkerStartError, one_line
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.report.json import finding_json
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.replay import own_backend, replay_entry
from fuzz.run.setup import try_loading
from fuzz.run.watcher import Watcher
from fuzz.search.coverage import cells, possible
from fuzz.search.engines import check_engine
from fuzz.search.statistics import RunStatistics
from fuzz.target.loader import load, load_planted, locate
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.worker.protocol import ReplicaGroup
from fuzz.worker.python_process import connect_to_parent
from fuzz.worker.worker_process import ProgramOrders
from fuzz.worker.worker_server import preload

HEARTBEAT_SECONDS = 2.0
"""Seconds between two signs of life."""
PROGRESS_SECONDS = 0.5
"""Seconds between two events about progress."""
MOST_UNSETTLED = 16
"""Disagreements that the end of a slice left unconfirmed and the next one looks at, at most."""


@dataclass
class SliceWatcher(Watcher):
    """Reports to the campaign what happens in a slice, and keeps the journal.

    `unsettled` is what the end of the slice left in question, and the next one is to run first.
    """

    channel: HostChannel
    journal: Journal
    suspects: dict[tuple[Any, ...], str]
    seeds: int
    saved: Path
    plans: int = 0
    backend: str = ""
    unsettled: list[ReplicaGroup] = field(default_factory=list)
    _visited: set[str] = field(default_factory=set)
    _new_cells: list[str] = field(default_factory=list)
    _last_progress: float = 0.0

    def on_start(self, options: RunOptions, target: Target, backend: str) -> None:
        self.backend = backend
        self.channel.send(protocol.Started(possible(target)))

    def on_group_start(self, group: ReplicaGroup) -> None:
        self.journal.start_group(group)

    def on_group_done(self, group: ReplicaGroup) -> None:
        """Everything about this group is kept by now."""
        path = self.suspects.pop(group.plan.key, None)
        if path is not None:
            self.channel.send(protocol.SuspectCleared(path))
        elif self.seeds:
            self.seeds -= 1
        else:
            self.plans += 1
        new = cells(group.plan) - self._visited
        self._visited |= new
        self._new_cells += sorted(new)
        self.journal.finish_group(group)

    def on_cut_off(self, case: Case, finding: Finding, index: int) -> None:
        if len(self.unsettled) < MOST_UNSETTLED:
            self.unsettled.append(ReplicaGroup(case, ((),), index))

    def on_end(self, running: Sequence[ReplicaGroup]) -> None:
        """A suspect that still runs stays one; a plan runs again, or is left in question where it took the whole slice.

        The next slice is longer. Calls that hang or fill the memory may take longer than a short one.
        """
        suspects = [group for group in running if group.plan.key in self.suspects]
        self.unsettled += suspects
        if running and not suspects and not self.seeds and not self.plans:
            self.unsettled += running
            self.plans += 1

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        if time.monotonic() - self._last_progress > PROGRESS_SECONDS:
            self._last_progress = time.monotonic()
            self.channel.send(protocol.Progress(**self.progress_fields(statistics, seconds)))

    def progress_fields(self, statistics: RunStatistics, seconds: float) -> dict[str, Any]:
        """The fields of Progress; the new cells are reported once."""
        new, self._new_cells = tuple(self._new_cells), []
        counts = {"cases": statistics.cases, "rejected": statistics.rejected, "worst": statistics.worst}
        return {"plans": self.plans + statistics.left_out, "seconds": seconds, "cells": new, **counts}

    def on_saving(self, bug: Bug, name: str, replaced: str) -> None:
        if replaced or not bug.known:
            note_saved(self.saved, name, Path(replaced).name)

    def on_saved(self, bug: Bug, replaced: str) -> None:
        self.channel.send(EntrySaved(*_hit_fields(bug), replaced, self.backend, dict(finding_json(bug))))

    def on_triaged(self, bug: Bug) -> None:
        self.channel.send(protocol.FindingTriaged(Path(bug.path).stem))


def _hit_fields(bug: Bug) -> tuple[str, bool, int, int]:
    """The fields of Hit."""
    return bug.path, bug.known, bug.hits, bug.origin.index


def run_slice(request: Slice, channel: HostChannel) -> None:
    start = time.monotonic()
    try_loading(locate(request.target)[0])
    target = load(request.target)
    if request.planted:
        load_planted(target, request.planted)
    check_engine(request.engine)
    # Late: it imports torch, which a request that is wrong does not need.
    from fuzz.backends import backend
    from fuzz.target.inputs import seed_cases

    device = backend(request.backend)
    name = device.name
    suspects = _read_suspects(request)
    journal = Journal(Path(request.journal), device.needs_durable_journal, channel.copy_journal_line)
    options = RunOptions(
        request.target, request.planted or None, name, request.engine, request.seed, request.seconds, request.cases,
        workers=1, corpus=Path(request.corpus), memory=request.memory, first_plan=request.plan, first_case=request.case,
    )  # fmt: skip
    seeds = len(seed_cases(target)) if request.plan == 0 else 0
    paths, saved = {case.key: path for path, case in suspects.items()}, Path(request.saved)
    watcher = SliceWatcher(channel, journal, paths, seeds, saved)
    fuzzer = Fuzzer(
        options, target, name, Path(request.corpus), watcher, environment.versions(), start,
        tuple(suspects.values()), keep_smaller_duplicate=False, file_lock=channel.lock, allow_all_rejected=True,
        orders=ProgramOrders(request.grid_order_only),
    )  # fmt: skip
    result = fuzzer.run()
    journal.close()
    for group in watcher.unsettled:
        journal.start_group(group)
    journal.release()
    for bug in result.bugs:
        if bug.path:
            channel.send(protocol.Hit(*_hit_fields(bug)))
    rejection = fuzzer.last_rejection if result.statistics.all_rejected else ""
    if request.coverage and not device.is_accelerator:
        measure_coverage(replace(options, cases=request.coverage), target, Path(request.corpus), channel)
    progress = watcher.progress_fields(result.statistics, result.seconds)
    channel.send(protocol.SliceDone(
        **progress, unconfirmed=result.unconfirmed, rejection=rejection, grid_order_only=result.grid_order_only
    ))  # fmt: skip


def measure_coverage(options: RunOptions, target: Target, folder: Path, channel: HostChannel) -> None:
    """Reports what cases of the job reach, those that were saved first; for as long as the slice took, at most."""
    from fuzz.coverage_report.assemble import make_report
    from fuzz.coverage_report.collect import collect

    with suppress(UsageError):  # The next slice says what is wrong with the target or its entries.
        collected = collect(target, options, options.backend, folder, time.monotonic())
        if collected.cases:
            channel.send(protocol.CoverageMeasured(make_report(target, collected).as_json()))


def _read_suspects(request: Slice) -> dict[str, Case]:
    """Path -> case of each suspect that can still be read."""
    suspects = {}
    for path in request.suspects:
        with suppress(OSError, CorpusError):
            suspects[path] = codec.loads(Path(path).read_bytes(), digest=False).case
    return suspects


def replay_entries(request: Replay, channel: HostChannel) -> None:
    """Runs entries again, each in a clean worker."""
    for path in request.paths:
        channel.send(protocol.Replaying(path))
        try:
            entry = corpus.read(Path(path))
            try_loading(locate(request.target)[0])
            replayed = replay_entry(Path(path), entry, own_backend(entry, request.backend), request.target)
            why = f"it was seen on {entry.provenance.backend}, and agrees on {replayed.backend}"
            shown = (None, "", why) if replayed.undecided else (replayed.reproduced, entry.status)
        except UsageError as error:
            shown = None, "", one_line(error)
        channel.send(protocol.Replayed(path, *shown))


def handle(request: Request, channel: HostChannel) -> None:
    """Does what a request asks for; what goes wrong is an event."""
    try:
        if isinstance(request, Slice):
            run_slice(request, channel)
        elif isinstance(request, Replay):
            replay_entries(request, channel)
    except CorpusError as error:
        channel.send(protocol.Unwritable(one_line(error)))
    except WorkerStartError as error:
        channel.send(protocol.Failed(one_line(error)))
    except UsageError as error:
        channel.send(protocol.Refused(one_line(error)))
    except OSError as error:
        channel.send(protocol.Unwritable(f"{error.filename or 'a file'}: {error.strerror}"))
    except Exception as error:
        traceback.print_exc()
        channel.send(protocol.Failed(f"internal error: {one_line(error)}"))


def main() -> None:
    # By it a campaign ends a slice; started in the background of a shell, it has its processes ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pipe, *folder = sys.argv[1:]
    channel = HostChannel(connect_to_parent(pipe), Path(folder[0]).resolve() if folder else None)
    threading.Thread(target=_send_heartbeats, args=(channel,), daemon=True).start()
    preload("fuzz.server_preload")
    channel.send(protocol.Ready())
    try:
        for request in channel.requests():
            handle(request, channel)
            channel.send(protocol.Ready())
    except (ConnectionError, KeyboardInterrupt):
        return


def _send_heartbeats(channel: HostChannel) -> None:
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        try:
            channel.send(protocol.HostHeartbeat())
        except OSError:
            os._exit(1)


if __name__ == "__main__":
    main()
