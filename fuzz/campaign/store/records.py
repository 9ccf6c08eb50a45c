"""Declares what the store holds, as frozen dataclasses from which its tables are derived.

Wall times are seconds since 1970 and only shown; `seconds` and `elapsed` are seconds of fuzzing, counted by a clock
that never jumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Record:
    """Something that the store holds. A record that is written takes the place of the one with the same `KEY`."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values of the fields of `KEY`."""
        return tuple(getattr(self, name) for name in self.KEY)


@dataclass(frozen=True)
class Campaign(Record):
    """One run over some targets. `config` is the validated configuration as JSON text, `folder` holds its journals.

    `state` is running (a process works on it), stopped (it can be resumed), finished (its budget is used up) or failed.
    """

    id: int
    name: str
    config: str
    state: str
    seconds: float
    cases: int
    created: float
    updated: float
    corpus: str
    folder: str
    host: str
    pid: int
    note: str = ""


@dataclass(frozen=True)
class JobKey(Record):
    """What names a job: one target on one backend by one engine with one seed; `planted` as in `fuzz run`."""

    KEY: ClassVar[tuple[str, ...]] = ("campaign", "target", "planted", "backend", "engine", "seed")

    campaign: int
    target: str
    planted: str
    backend: str
    engine: str
    seed: int

    @property
    def job(self) -> tuple[int, str, str, str, str, int]:
        """The values that name the job."""
        return self.campaign, self.target, self.planted, self.backend, self.engine, self.seed


@dataclass(frozen=True)
class Job(JobKey):
    """How far a job is within its campaign.

    `plan` is the next plan's number, `cells` what has been visited (docs/campaigns.md), `possible` how many cells
    there are. `new`, `known` and `fixed` count findings. `note` says why a job takes no more slices, if so.
    """

    plan: int = 0
    cases: int = 0
    rejected: int = 0
    seconds: float = 0.0
    slices: int = 0
    deaths: int = 0
    worst: float = 0.0
    new: int = 0
    known: int = 0
    fixed: int = 0
    unconfirmed: int = 0
    discoveries: int = 0
    recent: float = 0.0
    cells: tuple[str, ...] = ()
    possible: int = 0
    note: str = ""

    @property
    def share(self) -> float:
        """The share of its cells that a job has visited."""
        return len(self.cells) / self.possible if self.possible else 0.0

    @property
    def rate(self) -> float:
        """Cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class JobTotals:
    """What the jobs of one campaign add up to; `worst` is the largest of theirs."""

    targets: int = 0
    new: int = 0
    known: int = 0
    fixed: int = 0
    worst: float = 0.0


@dataclass(frozen=True)
class Heartbeat(Record):
    """A sign of life of one worker of a campaign; `lane` is the target of its job.

    `ticks` counts from the start of the machine that `boot` names.
    """

    KEY = ("campaign", "worker")

    campaign: int
    worker: str
    host: str
    pid: int
    state: str
    lane: str
    beats: int
    wall: float
    ticks: float
    boot: str

    def age(self, wall: float, ticks: float, boot: str) -> float:
        """Seconds since; by the clock that never jumps where the reader is on the same machine."""
        return max(ticks - self.ticks if boot and boot == self.boot else wall - self.wall, 0.0)


@dataclass(frozen=True)
class Moment(JobKey):
    """A moment of a job, by a `number` that only grows."""

    KEY = (*JobKey.KEY, "number")

    number: int
    wall: float
    elapsed: float
    cases: int


@dataclass(frozen=True)
class Statistic(Moment):
    """Where one job stood at a moment. `id` grows with every statistic that is written; 0 before that."""

    cases_per_second: float
    findings: int
    worst: float
    coverage: float
    id: int = 0


@dataclass(frozen=True)
class Coverage(Moment):
    """What the cases of one job had reached at a moment, out of all lines, branches and masks of its code.

    `number` counts the job's slices, `blockers` is what was never tried, as ``fuzz coverage --json`` lists it.
    """

    rejected: int
    lines_run: int
    lines_all: int
    branches_run: int
    branches_all: int
    masks_run: int
    masks_all: int
    blockers: str
    id: int = 0


@dataclass(frozen=True)
class FindingRecord(Record):
    """One finding. `id` is its entry's name without the ending, `path` its file below the folder `corpus`.

    `replayed` is what came of replaying its entry last: nothing yet, ``disagrees`` or ``agrees``. `severity` and
    `input_class` are empty where it is not graded.
    """

    id: str
    corpus: str
    path: str
    target: str
    oracle: str
    output: str
    symptom: str
    message: str
    verdict: str
    status: str
    planted: str
    dims: Mapping[str, int]
    elements: int
    diagnosis: str
    first_seen: float
    last_seen: float
    hits: int = 0
    replayed: str = ""
    severity: str = ""
    input_class: str = ""


@dataclass(frozen=True)
class Occurrence(Record):
    """One time that a finding was seen: in one slice of a campaign, or recorded by its entry. `key` makes it unique.

    `new` is whether the finding was saved then for the first time.
    """

    KEY = ("finding", "key")

    finding: str
    key: str
    wall: float
    campaign: int | None = None
    backend: str = ""
    engine: str = ""
    seed: int = 0
    case: int = 0
    hits: int = 1
    new: bool = False
    seen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FormerId(Record):
    """An id that a finding had until a smaller case replaced its entry; `finding` is its id now."""

    id: str
    finding: str


@dataclass(frozen=True)
class Submission(Record):
    """A solution that the service was asked to judge. `id` is a hash of everything that is judged.

    `problem` holds the problem's files by name as JSON, `solution` a text, `judgement` the judgement as JSON once there
    is one. `state` is queued, running or judged. `owner` is the process that judges it, `updated` its last sign of
    life, and `tries` counts those that have taken it.
    """

    id: str
    name: str
    format: str
    problem: str
    solution: str
    backend: str
    seconds: float
    seed: int
    memory: int
    created: float
    updated: float = 0.0
    tries: int = 0
    state: str = "queued"
    owner: str = ""
    verdict: str = ""
    judgement: str = ""
