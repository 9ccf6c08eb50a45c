"""Conduct: the loop of a campaign: hands slices to hosts, listens, keeps what they tell, ends when the budget does."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.local_hosts import Hosts
from fuzz.campaign.protocol import Event, Replay, Request, Slice
from fuzz.campaign.schedule import next_job
from fuzz.campaign.state import Ledger, Sums, target_name
from fuzz.campaign.store import Heartbeat
from fuzz.errors import CorpusError, FuzzError, UsageError
from fuzz.report.notify import finding_document
from fuzz.run.options import total_memory
from fuzz.worker.clock import Clock, boot_id

BEAT = 5.0
"""Seconds between two heartbeats in the store."""
LOOK = 0.5
"""Seconds that events are waited for, at most."""
SHOWN = 10.0
"""Seconds between two lines of progress."""
SILENCE = 300.0
"""Seconds without any sign of life after which a host is ended."""
SLACK = 900.0
"""Seconds that a slice may take beyond twice its time, for shrinking, before it is ended."""
TOGETHER = 20
"""Entries in one request to replay."""
FAILURES = 8
"""Slices of a lane in a row that end without a case, after which it is given up; starts of a host likewise."""
FAREWELL = 60.0
"""Seconds that hosts have to end their slices in an orderly way."""
LEAST = 20
"""Cases of a slice, at least, where a number of cases is the budget."""


@dataclass
class Post:
    """One worker's place: its host, and what that works on. `lane` is an index; -1 where there is none."""

    number: int
    state: str = "gone"
    lane: int = -1
    request: Request | None = None
    sums: Sums | None = None
    left: list[str] = field(default_factory=list)
    began: float = 0.0
    heard: float = 0.0
    wall: float = 0.0
    beats: int = 0
    failures: int = 0
    last: bool = False
    waited: bool = False
    why: str = ""


@dataclass
class Conductor:
    """Runs a campaign. `say` gets lines for people, `notify` what a team wants to hear of."""

    config: CampaignConfig
    ledger: Ledger
    hosts: Hosts
    clock: Clock
    say: Callable[[str], None]
    notify: Callable[[dict[str, object]], None]
    posts: list[Post] = field(default_factory=list)
    replays: deque[tuple[int, Replay]] = field(default_factory=deque)
    barren: dict[int, int] = field(default_factory=dict)
    ending: bool = False
    stopping: bool = False
    stuck: str = ""
    base: float = 0.0
    start: float = 0.0
    beaten: float = -BEAT
    shown: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds that this campaign has run, earlier runs of it included."""
        return self.base + self.clock.monotonic() - self.start

    def run(self) -> str:
        """Runs until the budget ends, Ctrl-C, or an error; returns ``finished`` or ``stopped``."""
        self.base, self.start = self.ledger.campaign.seconds, self.clock.monotonic()
        self.shown = self.start
        self.ledger.last_new = self.base
        for lane in self.ledger.lanes:
            self.ledger.arrest(lane, blamed=True)
        self._plan_replays()
        self.posts = [Post(number) for number in range(self.config.workers)]
        state = "finished"
        try:
            while not (self._over() or self.stuck):
                self._assign()
                self._listen(LOOK)
                self._look_after()
            self._let_finish()
        except KeyboardInterrupt:
            state = "stopped"
        except OSError as error:
            self.stuck = f"{error.filename or 'a file'}: {error.strerror}"
        except BaseException:
            self.hosts.close()
            self._close("failed")
            raise
        self._stop()
        self._close("stopped" if self.stuck else state)
        if self.stuck:
            raise CorpusError(f"{self.stuck}; the campaign has stopped, --resume goes on")
        return state

    def _over(self) -> bool:
        budget, elapsed = self.config.budget, self.elapsed
        if all(lane.note for lane in self.ledger.lanes) and not any(post.state == "busy" for post in self.posts):
            if not self.ledger.cases:
                raise UsageError(self.ledger.lanes[0].note)
            return True
        quiet = elapsed - self.ledger.last_new
        ends = [(budget.time, elapsed), (budget.cases, self.ledger.cases), (budget.quiet, quiet)]
        self.ending = self.ending or any(limit is not None and used >= limit for limit, used in ends)
        # What was in question when a slice ended is still looked at: it may be a finding that was all but saved.
        waits = any(post.state == "busy" and post.last for post in self.posts) or bool(self.ledger.urgent())
        return self.ending and not waits

    # Requests.

    def _plan_replays(self) -> None:
        """Former findings are replayed first, those of each target once for each backend."""
        done: set[tuple[str, str, str]] = set()
        for index, lane in enumerate(self.ledger.lanes):
            place = self.ledger.corpus / target_name(lane)
            if (lane.target, lane.planted, lane.backend) in done or not place.is_dir():
                continue
            done.add((lane.target, lane.planted, lane.backend))
            paths = [str(path) for path in corpus.entry_files([place]) if self._is_replayed(path, lane.planted)]
            for first in range(0, len(paths), TOGETHER):
                request = Replay(lane.target, lane.backend, tuple(paths[first : first + TOGETHER]))
                self.replays.append((index, request))

    def _is_replayed(self, path: Path, planted: str) -> bool:
        entry = corpus.read(path)
        return entry.finding is not None and entry.planted == planted and entry.status != "accepted"

    def _assign(self) -> None:
        for post in self.posts:
            if post.state == "gone":
                if post.failures >= FAILURES:
                    raise FuzzError(f"worker {post.number} ended {FAILURES} times before it was ready: {post.why}")
                self.hosts.start(post.number)
                self._hears(post, "starting")
            elif post.state == "idle":
                self._give(post)

    def _give(self, post: Post) -> None:
        if self.replays:
            post.lane, post.request = self.replays.popleft()
            post.left = list(post.request.paths) if isinstance(post.request, Replay) else []
            post.sums = None
        else:
            busy = {other.lane for other in self.posts if other.state == "busy" and other.sums}
            urgent = self.ledger.urgent()
            index = next_job(self.ledger.lanes, busy, urgent)
            if self.ending and index not in urgent:
                return
            cases = None if self.ending else self._cases_left()
            if index is None or cases == 0:
                return
            post.lane, post.sums = index, self.ledger.begin(index)
            post.request, post.last = self._slice(index, cases), self.ending
        self._hears(post, "busy")
        self.hosts.send(post.number, post.request)

    def _cases_left(self) -> int | None:
        """The cases that one more slice may run, or None where only time counts."""
        if self.config.budget.cases is None:
            return None
        promised = sum(
            post.sums.before.cases + (post.request.cases or 0) - self.ledger.lanes[post.lane].cases
            for post in self.posts
            if post.state == "busy" and post.sums and isinstance(post.request, Slice)
        )
        left = self.config.budget.cases - self.ledger.cases - promised
        active = sum(not lane.note for lane in self.ledger.lanes)
        return max(min(left, max(-(-left // max(active, 1)), LEAST)), 0)

    def _slice(self, index: int, cases: int | None) -> Slice:
        lane = self.ledger.lanes[index]
        seconds = self.config.slice
        if self.config.budget.time is not None:
            seconds = max(min(seconds, self.config.budget.time - self.elapsed), 1.0)
        memory = self.config.memory or max(total_memory() // (2 * self.config.workers), 1 << 30)
        names = lane.target, lane.planted, lane.backend, lane.engine, lane.seed
        files, held = (str(self.ledger.corpus), str(self.ledger.journal(lane))), self.ledger.held(lane)
        # After the end of the budget a slice is for suspects alone.
        cases = max(len(held), 1) if self.ending else cases
        return Slice(*names, lane.plan, lane.cases, seconds, cases, *files, memory, held)

    # Events.

    def _hears(self, post: Post, state: str) -> None:
        post.state, post.wall = state, self.clock.wall()
        post.began = post.heard = self.clock.monotonic()

    def _listen(self, seconds: float) -> None:
        for number, event in self.hosts.collect(seconds):
            post = self.posts[number]
            post.heard, post.wall = self.clock.monotonic(), self.clock.wall()
            post.beats += 1
            handle = getattr(self, f"_on_{event['kind']}", None)
            if handle is not None:
                handle(post, event)

    def _on_ready(self, post: Post, event: Event) -> None:
        post.state, post.failures, post.waited = "idle", 0, False

    def _on_waits(self, post: Post, event: Event) -> None:
        if not post.waited:
            self.say(f"worker {post.number} waits for a place in the cluster")
        post.waited = True

    def _on_started(self, post: Post, event: Event) -> None:
        lane = self.ledger.lanes[post.lane]
        self.ledger.lanes[post.lane] = replace(lane, possible=event["possible"])

    def _on_progress(self, post: Post, event: Event) -> None:
        if post.sums:
            self.ledger.progress(post.lane, post.sums, event, self.elapsed)

    def _on_saved(self, post: Post, event: Event) -> None:
        if not post.sums:
            return
        new = self.ledger.saved(post.lane, post.sums, event, self.elapsed)
        if new:
            self.say(f"new finding: {event['path']}")
            lane = self.ledger.lanes[post.lane]
            finding = {**event["finding"], "id": new, "path": event["path"]}
            names = lane.target, lane.planted or None, event["backend"], lane.seed, self.config.name
            self.notify(finding_document(finding, *names))

    def _on_cleared(self, post: Post, event: Event) -> None:
        Path(event["path"]).unlink(missing_ok=True)

    def _on_replaying(self, post: Post, event: Event) -> None:
        post.left.remove(event["path"])

    def _on_replayed(self, post: Post, event: Event) -> None:
        self.ledger.replayed(post.lane, Path(event["path"]), event)

    def _on_done(self, post: Post, event: Event) -> None:
        if post.sums:
            self.ledger.progress(post.lane, post.sums, event, self.elapsed, ended=True)
            for found in event["findings"]:
                self.ledger.met(post.lane, post.sums, found)
            self._end(post)
        post.request = None

    def _end(self, post: Post, *, died: bool = False) -> None:
        """Closes a slice; a lane whose slices run nothing is given up."""
        assert post.sums is not None
        ran = self.ledger.lanes[post.lane].cases > post.sums.before.cases
        self.ledger.end(post.lane, post.sums, died=died)
        self.barren[post.lane] = 0 if ran else self.barren.get(post.lane, 0) + 1
        if self.barren[post.lane] >= FAILURES:
            self._give_up(post.lane, f"{FAILURES} slices in a row ended without a case")
        post.sums, post.request = None, None

    def _give_up(self, index: int, why: str) -> None:
        self.say(f"{self.ledger.lanes[index].target}: {why}")
        self.ledger.give_up(index, why)

    def _on_refused(self, post: Post, event: Event) -> None:
        self._give_up(post.lane, event["why"])
        post.sums, post.request = None, None

    def _on_stuck(self, post: Post, event: Event) -> None:
        self.stuck = self.stuck or event["why"]

    def _on_failed(self, post: Post, event: Event) -> None:
        self.say(f"{self.ledger.lanes[post.lane].target}: internal error: {event['why']}")
        if post.sums:
            self._arrest(post.lane)
            self._end(post, died=True)

    def _on_died(self, post: Post, event: Event) -> None:
        """The slice is lost from where it was last told to stand; what ran is run first by the next one."""
        if post.state == "starting":
            post.failures, post.why = post.failures + 1, event["why"]
        if isinstance(post.request, Replay):
            self._replay_rest(post)
        elif post.sums:
            lane = self.ledger.lanes[post.lane]
            count = self._arrest(post.lane)
            if not self.stopping:
                self.say(f"{lane.target}: worker {post.number} ended ({event['why']}); {count} cases are suspects")
            self._end(post, died=True)
        post.state, post.request, post.sums = "gone", None, None

    def _arrest(self, index: int) -> int:
        """Turns what ran into suspects; where they cannot be written, the campaign stops."""
        try:
            return self.ledger.arrest(self.ledger.lanes[index], blamed=not self.stopping)
        except CorpusError as error:
            self.stuck = self.stuck or str(error)
            return 0

    def _replay_rest(self, post: Post) -> None:
        assert isinstance(post.request, Replay)
        gone = [path for path in post.request.paths if path not in post.left][-1:]
        for path in gone:
            self.say(f"{path}: the worker ended while it was replayed")
        if post.left:
            self.replays.append((post.lane, replace(post.request, paths=tuple(post.left))))

    # Time.

    def _look_after(self) -> None:
        now = self.clock.monotonic()
        for post in self.posts:
            limit = 2 * post.request.seconds + SLACK if isinstance(post.request, Slice) else SLACK * TOGETHER
            late = post.state == "busy" and now - post.began > limit
            if late or post.state != "gone" and now - post.heard > SILENCE:
                self.say(f"worker {post.number} does not end its slice; it is ended")
                self.hosts.kill(post.number)
                post.began = post.heard = now
        if now - self.beaten > BEAT:
            self.beaten = now
            self._beat()
            self._tell("running")
        if now - self.shown > SHOWN:
            self.shown = now
            self.say(self.line())

    def _beat(self) -> None:
        store, number, host = self.ledger.store, self.ledger.campaign.id, socket.gethostname()
        for post in self.posts:
            lane = self.ledger.lanes[post.lane].target if post.lane >= 0 else ""
            name, pid = f"{host}/{post.number}", self.hosts.pid(post.number)
            times = post.beats, post.wall, post.heard, boot_id()
            beat = Heartbeat(number, name, host, pid, post.state, lane, *times)
            self.ledger.recorder.put(("beat", name), lambda beat=beat: store.save_heartbeat(beat))  # type: ignore[misc]

    def _tell(self, state: str, note: str = "") -> None:
        made = replace(
            self.ledger.campaign, state=state, seconds=self.elapsed, cases=self.ledger.cases,
            updated=self.clock.wall(), note=note,
        )  # fmt: skip
        self.ledger.campaign = made
        self.ledger.recorder.put("campaign", lambda: self.ledger.store.save_campaign(made))

    def line(self) -> str:
        """Where the campaign stands."""
        rate = sum(lane.cases for lane in self.ledger.lanes) / max(self.elapsed, 1e-9)
        found = f"findings {len(self.ledger.new)} new, {len(self.ledger.known)} known"
        return f"{self.elapsed:8.1f} s  {self.ledger.cases} cases  {rate:.0f} cases/s  {found}"

    # The end.

    def _let_finish(self) -> None:
        """Shrinking may go on for half of a slice's time beyond the budget."""
        until = self.clock.monotonic() + self.config.slice / 2
        while any(post.state == "busy" for post in self.posts) and self.clock.monotonic() < until and not self.stuck:
            self._listen(LOOK)

    def _stop(self) -> None:
        """Ends slices in an orderly way, so that what is being shrunk is saved as it is; then the hosts."""
        self.stopping = True
        until = self.clock.monotonic() + FAREWELL
        for post in self.posts:
            if post.state == "busy":
                self.hosts.interrupt(post.number)
        with suppress(KeyboardInterrupt):
            while any(post.state == "busy" for post in self.posts) and self.clock.monotonic() < until:
                self._listen(LOOK)
        self.hosts.close()
        for index in range(len(self.ledger.lanes)):
            self._arrest(index)

    def _close(self, state: str) -> None:
        store, host = self.ledger.store, socket.gethostname()
        for post in self.posts:
            name, number = f"{host}/{post.number}", self.ledger.campaign.id
            self.ledger.recorder.put(("beat", name), partial(store.remove_heartbeat, number, name))
        for index in range(len(self.ledger.lanes)):
            self.ledger.save(index)
        self._tell(state, self.stuck)
        if not self.ledger.recorder.flush(now=True):
            waiting = len(self.ledger.recorder.waiting)
            self.say(f"{waiting} writes never reached the store; the findings are in the corpus: fuzz store rebuild")
