"""Host: the process in which a campaign's slices run, one after another. ``python -m fuzz.campaign.worker_host``.

It reads requests from standard input and writes events to standard output. It ends with its campaign, and its workers
end with it; whatever ends it costs the slice that runs, and no other. With a folder as its argument it sees no file of
its campaign's, and keeps its own there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.campaign.host_channel import Voice
from fuzz.campaign.journal import Journal
from fuzz.campaign.protocol import Replay, Request, Slice
from fuzz.campaign.remote_channel import AwayVoice
from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError, one_line
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.report.json import finding_json
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer, Result
from fuzz.run.options import RunOptions
from fuzz.run.replay import elsewhere, own_backend, reproduces, target_of
from fuzz.search.coverage import cells, possible
from fuzz.search.engines import ENGINES
from fuzz.search.statistics import RunStatistics
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.worker.process import preload
from fuzz.worker.protocol import ReplicaGroup
from fuzz.worker.serve import PR_SET_PDEATHSIG

BEAT = 2.0
"""Seconds between two signs of life."""
TOLD = 0.5
"""Seconds between two events about progress."""
DURABLE = ("cuda",)
"""Backends whose kernels can take the machine down: each group is on disk before it runs."""


@dataclass
class Listener:
    """A Watcher that tells a campaign what happens, and keeps the journal."""

    voice: Voice
    asked_for: Slice
    journal: Journal
    suspects: dict[tuple[Any, ...], str]
    seeds: int
    plans: int = 0
    visited: set[str] = field(default_factory=set)
    fresh: list[str] = field(default_factory=list)
    told: float = 0.0
    backend: str = ""

    def on_start(self, options: RunOptions, target: Target, backend: str) -> None:
        self.backend = backend
        self.voice.say("started", possible=possible(target), backend=backend)

    def on_group_start(self, group: ReplicaGroup) -> None:
        self.journal.asked(group)

    def on_group_done(self, group: ReplicaGroup) -> None:
        """Everything about this group is kept by now."""
        path = self.suspects.pop(group.plan.key, None)
        if path is not None:
            self.voice.say("cleared", path=path)
        elif self.seeds:
            self.seeds -= 1
        else:
            self.plans += 1
        new = cells(group.plan) - self.visited
        self.visited |= new
        self.fresh += sorted(new)
        self.journal.judged(group)

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        if time.monotonic() - self.told > TOLD:
            self.told = time.monotonic()
            self.tell("progress", statistics, seconds)

    def tell(self, kind: str, statistics: RunStatistics, seconds: float, **more: Any) -> None:
        fresh, self.fresh = self.fresh, []
        counted = {"cases": statistics.cases, "rejected": statistics.rejected, "worst": statistics.worst}
        self.voice.say(kind, plans=self.plans, seconds=seconds, cells=fresh, **counted, **more)

    def on_saved(self, bug: Bug, replaced: str) -> None:
        told = {"backend": self.backend, "finding": dict(finding_json(bug))}
        self.voice.say("saved", path=bug.path, replaced=replaced, **seen(bug), **told)

    def on_disagreement(self, case: Case, finding: Finding, index: int) -> None: ...
    def on_shrunk(self, bug: Bug) -> None: ...
    def on_unconfirmed(self, finding: Finding, index: int, why: str) -> None: ...


def seen(bug: Bug) -> dict[str, Any]:
    return {"known": bug.known, "accepted": bug.accepted, "hits": bug.hits, "case": bug.first_index}


def work(request: Slice, voice: Voice) -> None:
    """Runs a slice."""
    target = load(request.target)
    if request.planted:
        load_planted(target, request.planted)
    if request.engine not in ENGINES:
        raise UsageError(f"unknown engine {request.engine!r}; known: {', '.join(ENGINES)}")
    # Late: it imports torch, which a request that is wrong does not need.
    from fuzz.backends import backend
    from fuzz.target.seeds import seed_cases

    name = backend(request.backend).name
    suspects = read_suspects(request)
    journal = Journal(Path(request.journal), name in DURABLE, voice.noted)
    options = RunOptions(
        request.target, request.planted or None, name, request.engine, request.seed, request.seconds, request.cases,
        corpus=Path(request.corpus), memory=request.memory, first_plan=request.plan, first_case=request.case,
    )  # fmt: skip
    paths = {case.key: path for path, case in suspects.items()}
    listener = Listener(voice, request, journal, paths, len(seed_cases(target)) if request.plan == 0 else 0)
    cases = tuple(suspects.values())
    folder = Path(request.corpus)
    fuzzer = Fuzzer(
        options, target, name, folder, listener, environment.versions(),
        suspects=cases, keep_smaller_duplicate=False, file_lock=voice.turn,
    )  # fmt: skip
    finish(fuzzer.run(), listener)
    journal.close()
    voice.closed()


def finish(result: Result, listener: Listener) -> None:
    findings = [{"path": bug.path, **seen(bug)} for bug in result.bugs if bug.path]
    sums = {"findings": findings, "unconfirmed": result.unconfirmed, "interrupted": result.interrupted}
    listener.tell("done", result.statistics, result.seconds, **sums)


def read_suspects(request: Slice) -> dict[str, Case]:
    """Path -> case of each suspect that can still be read."""
    found = {}
    for path in request.suspects:
        try:
            found[path] = codec.loads(Path(path).read_bytes(), digest=False).case
        except (OSError, CorpusError):
            continue
    return found


def replay(request: Replay, voice: Voice) -> None:
    """Runs entries again, each in a clean worker."""
    from fuzz.backends import backend

    for path in request.paths:
        voice.say("replaying", path=path)
        try:
            entry = corpus.read(Path(path))
            text, target = target_of(entry, Path(path), request.target)
            name = backend(own_backend(entry, request.backend)).name
            disagrees = reproduces(entry, text, target, name)
        except UsageError as error:
            voice.say("replayed", path=path, disagrees=None, why=one_line(error))
            continue
        if elsewhere(entry, name, disagrees):
            why = f"it was seen on {entry.seen['backend']}, and agrees on {name}"
            voice.say("replayed", path=path, disagrees=None, why=why)
            continue
        voice.say("replayed", path=path, disagrees=disagrees, status=entry.status)
    voice.say("done")


def answer(request: Request, voice: Voice) -> None:
    """Does what is asked; an error of it is an event, and ends this process where it is not the request's."""
    try:
        if isinstance(request, Slice):
            work(request, voice)
        else:
            replay(request, voice)
    except CorpusError as error:
        voice.say("stuck", why=one_line(error))
    except UsageError as error:
        voice.say("refused", why=one_line(error))
    except OSError as error:
        voice.say("stuck", why=f"{error.filename or 'a file'}: {error.strerror}")
    except Exception as error:
        traceback.print_exc()
        voice.say("failed", why=one_line(error))


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.fdopen(os.dup(1), "wb")
    voice = AwayVoice(out, root=Path(sys.argv[1]).resolve(), ears=sys.stdin) if len(sys.argv) > 1 else Voice(out)
    # What a target prints must not end up among the events.
    os.dup2(2, 1)
    threading.Thread(target=beat, args=(voice,), daemon=True).start()
    preload("fuzz.oracles.preload")
    voice.say("ready", pid=os.getpid())
    try:
        for line in sys.stdin:
            request = voice.heard(line)
            if request is not None:
                answer(request, voice)
                voice.say("ready", pid=os.getpid())
    except (BrokenPipeError, KeyboardInterrupt):
        return


def beat(voice: Voice) -> None:
    while True:
        time.sleep(BEAT)
        try:
            voice.say("beat")
        except OSError:
            os._exit(1)


if __name__ == "__main__":
    main()
