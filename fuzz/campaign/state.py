"""Ledger: what a campaign has come to: its lanes, its findings, its suspects; kept in store and folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.journal import suspects
from fuzz.campaign.protocol import Event, Slice
from fuzz.campaign.recorder import Recorder
from fuzz.campaign.schedule import FINDING, earned
from fuzz.campaign.store import Campaign, Finding, Job, Occurrence, Statistic, Store, finding_of
from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.worker.clock import Clock

TOGETHER, TRIES = 2, 10
"""Deaths beside a suspect below which it runs with others, and after which it is only kept."""
LEFT = {str(number) for number in range(TRIES)}
WRITTEN, COUNTED = 2.0, 10.0
"""Seconds between two writes of where a lane stands, and between two of its statistics."""


def tag(lane: Job) -> str:
    """A short name of a lane, for files and keys."""
    told = repr((lane.target, lane.planted, lane.backend, lane.engine, lane.seed))
    return hashlib.sha256(told.encode()).hexdigest()[:10]


def target_name(lane: Job | Slice) -> str:
    """The name of a lane's or slice's target, which is its folder's in the corpus."""
    return lane.target.rpartition(":")[2] if ".py:" in lane.target else lane.target.replace("/", "_")


@dataclass
class Sums:
    """Of one slice while it runs: the lane as it was before, and what has been discovered since."""

    before: Job
    new: set[str] = field(default_factory=set)
    cells: int = 0
    written: float = -WRITTEN
    counted: float = -COUNTED


@dataclass
class Ledger:
    """Everything that a resumed campaign needs to know. The lanes stand in the order of the configuration."""

    store: Store
    recorder: Recorder
    clock: Clock
    campaign: Campaign
    lanes: list[Job]
    told: Callable[[str], None]
    new: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    cells: dict[str, set[str]] = field(default_factory=dict)
    last_new: float = 0.0

    @property
    def corpus(self) -> Path:
        return Path(self.campaign.corpus)

    @property
    def folder(self) -> Path:
        return Path(self.campaign.folder)

    @property
    def cases(self) -> int:
        return sum(lane.cases for lane in self.lanes)

    def recall(self) -> None:
        """Takes up what the store knows of this campaign."""
        saved = {tag(lane): lane for lane in self.store.jobs(self.campaign.id)}
        self.lanes = [replace(saved.get(tag(lane), lane), note="") for lane in self.lanes]
        self.cells = {tag(lane): set(lane.cells) for lane in self.lanes}
        for seen in self.store.occurrences(campaign=self.campaign.id, limit=1 << 31):
            (self.new if seen.new else self.known)[seen.finding] = seen.key.split(":")[1]
        self.known = {name: place for name, place in self.known.items() if name not in self.new}

    def adopt(self, found: Iterable[Finding]) -> None:
        """Takes up findings that an earlier run of this campaign saved, and ended before it could tell the store.

        Another campaign's would be in the store, or come there when that one goes on.
        """
        lanes = {(target_name(lane), lane.planted): lane for lane in reversed(self.lanes)}
        for finding in found:
            lane = lanes.get((finding.target, finding.planted))
            if lane is None:
                continue
            mark = self.new[finding.id] = tag(lane)
            key = f"{lane.campaign}:{mark}:saved"
            seen = Occurrence(
                finding.id, key, finding.first_seen, lane.campaign, engine=lane.engine, seed=lane.seed, new=True
            )
            self.recorder.put(("finding", finding.id, key), partial(self.store.save_finding, finding, seen))

    # Slices.

    def begin(self, index: int) -> Sums:
        return Sums(self.lanes[index])

    def progress(self, index: int, sums: Sums, event: Event, elapsed: float, *, ended: bool = False) -> None:
        """Takes up where a slice stands; `ended` where it will not go further."""
        before, visited = sums.before, self.cells.setdefault(tag(sums.before), set())
        fresh = set(event["cells"]) - visited
        visited |= fresh
        sums.cells += len(fresh)
        lane = replace(
            self.lanes[index],
            plan=before.plan + event["plans"],
            cases=before.cases + event["cases"],
            rejected=before.rejected + event["rejected"],
            seconds=before.seconds + event["seconds"],
            worst=max(before.worst, event["worst"]),
            unconfirmed=before.unconfirmed + event.get("unconfirmed", 0),
            cells=tuple(sorted(visited)),
        )
        self.lanes[index] = lane
        now = self.clock.monotonic()
        if ended or now - sums.written > WRITTEN:
            sums.written = now
            self.save(index)
        if ended or now - sums.counted > COUNTED:
            sums.counted = now
            self.count(index, elapsed)

    def end(self, index: int, sums: Sums, *, died: bool = False) -> None:
        """Closes a slice: what it discovered decides when the lane's turn comes again."""
        lane, before = self.lanes[index], sums.before
        discoveries = sums.cells + FINDING * len(sums.new)
        self.lanes[index] = replace(
            lane,
            slices=lane.slices + 1,
            deaths=lane.deaths + died,
            discoveries=lane.discoveries + discoveries,
            recent=earned(before, discoveries, lane.seconds - before.seconds),
        )
        self.save(index)

    def give_up(self, index: int, why: str) -> None:
        """Lets a lane have no more slices, until the campaign is resumed."""
        self.lanes[index] = replace(self.lanes[index], note=why)
        self.save(index)

    def save(self, index: int) -> None:
        """Writes where a lane stands, with its findings counted."""
        mark = tag(self.lanes[index])
        new, known, fixed = (list(found.values()).count(mark) for found in (self.new, self.known, self.fixed))
        lane = self.lanes[index] = replace(self.lanes[index], new=new, known=known, fixed=fixed)
        self.recorder.put(("lane", mark), lambda: self.store.save_job(lane))

    def count(self, index: int, elapsed: float) -> None:
        """Writes a statistic."""
        lane = self.lanes[index]
        found = lane.new + lane.known
        # The lane's own seconds number its statistics: they only grow, whatever the clock does.
        number = int(lane.seconds * 1000)
        names = lane.campaign, lane.target, lane.planted, lane.backend, lane.engine, lane.seed
        made = Statistic(
            *names, number, self.clock.wall(), elapsed, lane.cases, lane.rate, found, lane.worst, lane.share
        )
        self.recorder.put(("statistic", *names, number), lambda: self.store.save_statistic(made))

    # Findings.

    def saved(self, index: int, sums: Sums, event: Event, elapsed: float) -> str:
        """Takes up an entry that a slice has written; the id of a finding that is new, or nothing."""
        path, replaced = Path(event["path"]), Path(event["replaced"]).stem if event["replaced"] else ""
        name, mark = path.stem, tag(self.lanes[index])
        first = not event["known"] and name not in self.new and replaced not in self.new
        if replaced in self.new:
            del self.new[replaced]
            sums.new.discard(replaced)
            self.new[name] = mark
        if first:
            self.new[name] = mark
            self.last_new = elapsed
        if name in self.new:
            sums.new.add(name)
        self.occurred(index, event, path, sums, replaced)
        return name if first else ""

    def met(self, index: int, sums: Sums, event: Event) -> None:
        """Takes up a finding that a slice hit, at its end."""
        name = Path(event["path"]).stem
        if name not in self.new:
            self.known[name] = tag(self.lanes[index])
        if event["accepted"]:
            self.accepted.add(name)
        self.occurred(index, event, Path(event["path"]), sums, "")

    def occurred(self, index: int, event: Event, path: Path, sums: Sums, replaced: str) -> None:
        lane, name = self.lanes[index], path.stem
        try:
            entry = corpus.read(path)
        except CorpusError:
            return  # Replaced or removed meanwhile; whoever did that tells of it.
        wall = self.clock.wall()
        made = finding_of(entry, path, self.corpus, wall)
        key, backend = f"{lane.campaign}:{tag(lane)}:{sums.before.slices}", entry.seen.get("backend", "")
        numbers = lane.seed, event["case"], event["hits"]
        seen = Occurrence(
            name, key, wall, lane.campaign, backend, lane.engine, *numbers, name in sums.new, dict(entry.seen)
        )
        self.recorder.put(("finding", name, key, replaced), lambda: self.store.save_finding(made, seen, replaced))

    def replayed(self, index: int, path: Path, event: Event) -> None:
        """Takes up what came of an entry that ran again."""
        name, disagrees, mark = path.stem, event["disagrees"], tag(self.lanes[index])
        if disagrees is None:
            self.told(f"{path} cannot be replayed: {event['why']}")
            return
        self.recorder.put(
            ("replayed", name), lambda: self.store.save_replay(name, "disagrees" if disagrees else "agrees")
        )
        if not disagrees and event["status"] == "open":
            self.fixed[name] = mark
            self.told(f"fixed: {path} agrees now; fuzz mark {path} fixed --why ..")
        if disagrees and event["status"] == "fixed":
            self.again[name] = mark
            self.told(f"marked fixed, but it disagrees again: {path}")
        self.save(index)

    # Suspects.

    def journal(self, lane: Job) -> Path:
        return self.folder / "journals" / f"{tag(lane)}.journal"

    def arrest(self, lane: Job, *, blamed: bool) -> int:
        """Turns what ran when a slice ended into suspects, files of their own; how many there are.

        `blamed` is whether one of them may have ended it: a campaign that is stopped ends its slices itself.
        """
        folder, journal = self.folder / "suspects", self.journal(lane)
        cases = suspects(journal)
        try:
            for case in cases:
                folder.mkdir(parents=True, exist_ok=True)
                self._arrest(folder, tag(lane), case, blamed)
        except OSError as error:
            # The journal stays, and is read again when the campaign goes on.
            raise CorpusError(f"cannot write {folder}: {error.strerror}") from None
        journal.unlink(missing_ok=True)
        return len(cases)

    def _arrest(self, folder: Path, mark: str, case: Case, blamed: bool) -> None:
        text = codec.dumps(Entry(case), digest=False).encode()
        digest = hashlib.sha256(text).hexdigest()[:16]
        old = next(folder.glob(f"{mark}-{digest}.*"), None)
        tries = (int(old.suffix[1:]) if old else 0) + blamed
        temporary = folder / f".{mark}.tmp"
        temporary.write_bytes(text)
        temporary.rename(folder / f"{mark}-{digest}.{tries}")
        if old is not None and int(old.suffix[1:]) != tries:
            old.unlink(missing_ok=True)

    def urgent(self) -> set[int]:
        """The lanes that have suspects which are to run."""
        folder = self.folder / "suspects"
        found = folder.iterdir() if folder.is_dir() else ()
        marks = {path.name.partition("-")[0] for path in found if path.suffix[1:] in LEFT}
        return {index for index, lane in enumerate(self.lanes) if tag(lane) in marks and not lane.note}

    def held(self, lane: Job) -> tuple[str, ...]:
        """The suspects of a lane that are to run first, or the first of them."""
        found = sorted((self.folder / "suspects").glob(f"{tag(lane)}-*"), key=lambda path: int(path.suffix[1:]))
        for path in found:
            if int(path.suffix[1:]) == TRIES:
                self.told(f"{path}: whatever ran it ended {TRIES} times; it is kept, and runs no more")
                path.rename(path.with_suffix(f".{TRIES + 1}"))
        left = [path for path in found if int(path.suffix[1:]) < TRIES]
        together = [path for path in left if int(path.suffix[1:]) < TOGETHER]
        # Alone, what kills is told from what only waited beside it.
        return tuple(str(path) for path in together or left[:1])
