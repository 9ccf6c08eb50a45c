"""Holds what a campaign knows, and writes it to the store: its jobs, its findings and its suspects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.campaign.jobs import FINDING_CELLS, average_discoveries
from fuzz.campaign.journal import Suspects, read_saved
from fuzz.campaign.protocol import EntrySaved, Hit, Progress, Replayed, Slice, SliceDone
from fuzz.campaign.recorder import Recorder
from fuzz.campaign.store import Campaign, Coverage, FindingRecord, Job, Occurrence, Statistic, Store
from fuzz.campaign.store.rebuild import finding_of
from fuzz.clock import Clock
from fuzz.errors import CorpusError
from fuzz.escaping import shell_quote

NO_CASE_RAN = "no case ran before the budget ended"
SAVE_SECONDS, STATISTIC_SECONDS = 2.0, 10.0
"""Seconds between two writes of where a job stands, and between two of its statistics."""


def tag(job: Job) -> str:
    """A short name of a job, for files and keys."""
    return hashlib.sha256(repr(job.job[1:]).encode()).hexdigest()[:10]


def target_name(job: Job | Slice) -> str:
    """The name of a job's or slice's target, which is its folder's in the corpus."""
    return job.target.rpartition(":")[2] if ".py:" in job.target else job.target.replace("/", "_")


@dataclass
class RunningSlice:
    """A slice while it runs: the job's index, the job as it was before, and what has been discovered since."""

    index: int
    before: Job
    new: set[str] = field(default_factory=set)
    cells: int = 0
    saved: float = -SAVE_SECONDS
    counted: float = -STATISTIC_SECONDS


@dataclass
class CampaignState:
    """Everything that a resumed campaign needs to know. The jobs stand in the order of the configuration.

    `new`, `known`, `fixed` and `regressed` give the tag of the job that saw a finding; `earlier` are the findings of
    others that were saved when this campaign began or went on, whether or not it has hit them. `former` maps a name
    that a finding had, before a smaller case took its place, to the next one. `last_new` is when a new finding was
    saved last, in seconds of fuzzing.
    """

    store: Store
    recorder: Recorder
    clock: Clock
    campaign: Campaign
    jobs: list[Job]
    say: Callable[[str], None]
    new: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    regressed: dict[str, str] = field(default_factory=dict)
    earlier: set[str] = field(default_factory=set)
    former: dict[str, str] = field(default_factory=dict)
    last_new: float = 0.0

    def __post_init__(self) -> None:
        self._start = self.clock.monotonic() - self.campaign.seconds
        self.suspects = Suspects(self.folder / "suspects", self.say)

    @property
    def corpus(self) -> Path:
        return Path(self.campaign.corpus)

    @property
    def folder(self) -> Path:
        return Path(self.campaign.folder)

    @property
    def cases(self) -> int:
        return sum(job.cases for job in self.jobs)

    @property
    def elapsed(self) -> float:
        """Seconds that this campaign has run, earlier runs of it included."""
        return self.clock.monotonic() - self._start

    def load(self) -> None:
        """Takes up what the store knows of this campaign."""
        saved = {tag(job): job for job in self.store.read(Job, campaign=self.campaign.id)}
        self.jobs = [replace(saved.get(tag(job), job), note="") for job in self.jobs]
        for seen in self.store.read(Occurrence, campaign=self.campaign.id, limit=1 << 31):
            (self.new if seen.new else self.known)[seen.finding] = seen.key.split(":")[1]
        self.known = {name: mark for name, mark in self.known.items() if name not in self.new}
        # A campaign that goes on replays entries again.
        for job in self.jobs if self.campaign.state == "finished" else ():
            self.fixed |= dict.fromkeys(job.agreeing, tag(job))
            self.regressed |= dict.fromkeys(job.regressed, tag(job))

    def start(self) -> None:
        """Lets time run, and takes up what was running when an earlier run of this campaign ended."""
        self._start = self.clock.monotonic() - self.campaign.seconds
        self.last_new = self.campaign.seconds
        saved = corpus.entry_files([self.corpus]) if self.corpus.is_dir() else ()
        self.earlier = {path.stem for path in saved} - self.new.keys()
        for index in range(len(self.jobs)):
            self.record_suspects(index, blamed=True)

    def adopt(self, findings: Iterable[FindingRecord]) -> None:
        """Takes up findings that an earlier run of this campaign saved, and ended before it could tell the store.

        Those of others may have come into the corpus meanwhile. What takes the place of an own one is new as that is.
        """
        jobs: dict[str, Job] = {}
        replaced: dict[str, set[str]] = {}
        for index, job in enumerate(self.jobs):
            for name, old in read_saved(self.saved(index)):
                jobs[name] = job
                replaced.setdefault(name, set()).add(old)
        for finding in (one for one in findings if one.id in jobs):
            job, names = jobs[finding.id], _all_before(finding.id, replaced)
            is_new = ("" in names or bool(names & self.new.keys())) and names <= {"", *jobs, *self.new}
            seen = [marks.pop(name) for marks in (self.new, self.known) for name in names if name in marks]
            if not (is_new or seen):
                continue
            mark = tag(job)
            (self.new if is_new else self.known)[finding.id] = mark
            key = f"{job.campaign}:{mark}:saved"
            occurrence = Occurrence(
                finding.id, key, finding.first_seen, job.campaign, engine=job.engine, seed=job.seed, new=is_new
            )
            place = self.corpus / finding.path
            gone = sorted(name for name in names - {"", finding.id} if not place.with_name(f"{name}.yaml").exists())
            for old in gone or [""]:
                write = partial(self.store.save_finding, finding, occurrence, old)
                self.recorder.put(("finding", finding.id, key, old), write)

    def saved(self, index: int) -> Path:
        """The file with the names of entries that a job's slices have saved, or were about to save: those of new
        findings, and those that take the place of others.
        """
        return self.folder / "saved" / tag(self.jobs[index])

    # Slices.

    def update(self, running: RunningSlice, event: Progress) -> None:
        """Takes up where a slice stands."""
        before, index, ended = running.before, running.index, isinstance(event, SliceDone)
        visited = {*self.jobs[index].cells, *event.cells}
        running.cells += len(visited) - len(self.jobs[index].cells)
        self.jobs[index] = replace(
            self.jobs[index],
            plan=before.plan + event.plans,
            cases=before.cases + event.cases,
            rejected=before.rejected + event.rejected,
            seconds=before.seconds + event.seconds,
            worst=max(before.worst, event.worst),
            unconfirmed=before.unconfirmed + (event.unconfirmed if isinstance(event, SliceDone) else 0),
            cells=tuple(sorted(visited)),
        )
        now = self.clock.monotonic()
        if ended or now - running.saved > SAVE_SECONDS:
            running.saved = now
            self.save_job(index)
        if ended or now - running.counted > STATISTIC_SECONDS:
            running.counted = now
            self.save_statistic(index)

    def end_slice(self, running: RunningSlice, *, died: bool = False) -> None:
        """Closes a slice: what it discovered decides when the job gets its next one."""
        job, before = self.jobs[running.index], running.before
        discoveries = running.cells + FINDING_CELLS * len(running.new)
        self.jobs[running.index] = replace(
            job,
            slices=job.slices + 1,
            deaths=job.deaths + died,
            discoveries=job.discoveries + discoveries,
            recent=average_discoveries(before, discoveries, job.seconds - before.seconds),
        )
        self.save_job(running.index)

    def give_up(self, index: int, why: str) -> None:
        """Lets a job have no more slices, until the campaign is resumed."""
        self.say(f"{self.jobs[index].target}: {why}")
        self.jobs[index] = replace(self.jobs[index], note=why)
        self.save_job(index)

    # What is written.

    def save_campaign(self, state: str, note: str = "") -> None:
        self.campaign = replace(
            self.campaign, state=state, seconds=self.elapsed, cases=self.cases, updated=self.clock.wall(), note=note
        )
        self.recorder.save(self.campaign)

    def save_job(self, index: int) -> None:
        """Writes where a job stands, with its findings counted, and those named that replays have shown another way."""
        mark = tag(self.jobs[index])
        new, known, fixed, regressed = (
            tuple(name for name in marks if marks[name] == mark)
            for marks in (self.new, self.known, self.fixed, self.regressed)
        )
        self.jobs[index] = replace(
            self.jobs[index], new=len(new), known=len(known), fixed=len(fixed), agreeing=fixed, regressed=regressed
        )
        self.recorder.save(self.jobs[index])

    def save_statistic(self, index: int) -> None:
        job = self.jobs[index]
        # The job's own seconds number its statistics: they only grow, whatever the clock does.
        number = int(job.seconds * 1000)
        counts = job.cases, job.rate, job.new + job.known, job.worst, job.share
        self.recorder.save(Statistic(*job.job, number, self.clock.wall(), self.elapsed, *counts))

    def save_coverage(self, index: int, report: Mapping[str, Any]) -> None:
        """Writes what the cases of a job have reached after the slice that runs."""
        job = self.jobs[index]
        counts = {
            f"{what}_{part}": report[what][part] for what in ("lines", "branches", "masks") for part in ("run", "all")
        }
        coverage = Coverage(
            *job.job, job.slices + 1, self.clock.wall(), self.elapsed, report["cases"], report["rejected"],
            blockers=json.dumps(report["blockers"]), **counts,
        )  # fmt: skip
        self.recorder.save(coverage)

    # Findings.

    def add_saved(self, running: RunningSlice, event: EntrySaved) -> str:
        """Takes up an entry that a slice has written; the id of a finding that is new, or nothing."""
        path, replaced = Path(event.path), Path(event.replaced).stem if event.replaced else ""
        name, mark = path.stem, tag(running.before)
        first = not event.known and name not in self.new and replaced not in self.new
        if first:
            # The entry of a known one that is found anew was removed meanwhile.
            self.earlier.discard(name)
            self.known.pop(name, None)
        # What a new finding was merged into may have been saved before this campaign began.
        is_new = not {name, replaced} & (self.earlier | self.known.keys())
        is_new &= first or name in self.new or replaced in self.new
        first &= is_new
        if first:
            self.last_new = self.elapsed
        if replaced not in ("", name):
            self._rename(running, replaced, name, mark)
        if is_new:
            self.new.setdefault(name, mark)
            running.new.add(name)
        elif self.new.pop(name, ""):
            self.known[name] = mark
            running.new.discard(name)
        self._save_occurrence(running, event, replaced)
        return name if first else ""

    def _rename(self, running: RunningSlice, old: str, new: str, mark: str) -> None:
        """Has a finding under another name from now on, or merges it with the one of that name."""
        self.former.pop(new, None)
        self.former[old] = new
        for marks in (self.new, self.known, self.fixed, self.regressed):
            if marks.pop(old, ""):
                marks[new] = mark
        if old in self.earlier:
            self.earlier = self.earlier - {old} | {new}
        running.new.discard(old)

    def add_hit(self, running: RunningSlice, event: Hit) -> None:
        """Takes up a finding that a slice hit, at its end."""
        name = Path(event.path).stem
        while name in self.former:
            name = self.former[name]
        if name not in self.new:
            self.known[name] = tag(running.before)
        self._save_occurrence(running, event, "")

    def _save_occurrence(self, running: RunningSlice, event: Hit, replaced: str) -> None:
        job, path = self.jobs[running.index], Path(event.path)
        try:
            entry = corpus.read(path)
        except CorpusError:
            return  # Replaced or removed meanwhile; whoever did that reports it.
        wall, name = self.clock.wall(), path.stem
        finding = finding_of(entry, path, self.corpus, wall)
        key, backend = f"{job.campaign}:{tag(job)}:{running.before.slices}", entry.provenance.backend
        numbers = job.seed, event.case, event.hits
        occurrence = Occurrence(
            name, key, wall, job.campaign, backend, job.engine, *numbers, name in running.new, entry.provenance.fields()
        )
        write = partial(self.store.save_finding, finding, occurrence, replaced)
        self.recorder.put(("finding", name, key, replaced), write)

    def add_replay(self, index: int, event: Replayed) -> None:
        """Takes up what came of an entry that ran again."""
        path, mark = Path(event.path), tag(self.jobs[index])
        if event.disagrees is None:
            self.say(f"{path} cannot be replayed: {event.why}")
            return
        outcome = "disagrees" if event.disagrees else "agrees"
        self.recorder.put(("replayed", path.stem), partial(self.store.save_replay, path.stem, outcome))
        if not event.disagrees and event.status == "open":
            self.fixed[path.stem] = mark
            self.say(f"fixed: {path} agrees now; fuzz mark {shell_quote(str(path))} fixed --why ..")
        if event.disagrees and event.status == "fixed":
            self.regressed[path.stem] = mark
            self.say(f"marked fixed, but it disagrees again: {path}")
        self.save_job(index)

    # Suspects.

    def journal(self, index: int) -> Path:
        return self.folder / "journals" / f"{tag(self.jobs[index])}.journal"

    def record_suspects(self, index: int, *, blamed: bool) -> int:
        """Turns what ran when a job's slice ended into suspects; how many there are."""
        return self.suspects.record(tag(self.jobs[index]), self.journal(index), blamed=blamed)

    def urgent_jobs(self) -> set[int]:
        """The jobs with suspects that are to run."""
        tags = self.suspects.tags()
        return {index for index, job in enumerate(self.jobs) if tag(job) in tags and not job.note}


def _all_before(name: str, replaced: Mapping[str, Iterable[str]]) -> set[str]:
    """A name, and all that it has taken the place of, one after another."""
    found, left = set[str](), [name]
    while left:
        name = left.pop()
        left += [old for old in replaced.get(name, ()) if old not in found]
        found.add(name)
    return found


def why_nothing_ran(cases: int, rejected: int) -> str:
    """What says that a campaign has tried nothing; empty where a launcher took a case."""
    if not cases:
        return NO_CASE_RAN
    return f"every one of {cases} cases was refused" if cases == rejected else ""
