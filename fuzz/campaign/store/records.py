"""Declares what the store holds, as frozen dataclasses from which its tables are derived.

Wall times are seconds since 1970 and only shown; `seconds` and `elapsed` are seconds of fuzzing, counted by a clock
that never jumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")
PYTHON_TYPES: dict[Any, tuple[type, ...]] = {
    float: (float, int), int | None: (int, type(None)), tuple[str, ...]: (tuple,), Mapping[str, int]: (dict,),
    Mapping[str, str]: (dict,),
}  # fmt: skip
"""What a field of a type holds, where that is not the type itself."""
JOB_KEY = ("campaign", "target", "planted", "backend", "engine", "seed")
"""The fields that name a job."""


@dataclass(frozen=True)
class Campaign:
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
class Job:
    """How far one target on one backend by one engine with one seed is within a campaign; `planted` as in `fuzz run`.

    `plan` is the next plan's number, `cells` what has been visited (docs/campaigns.md), `possible` how many cells
    there are. `new`, `known` and `fixed` count findings. `note` says why a job takes no more slices, if so.
    """

    campaign: int
    target: str
    planted: str
    backend: str
    engine: str
    seed: int
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
class Heartbeat:
    """A sign of life of one worker of a campaign; `lane` is the target of its job.

    `ticks` counts from the start of the machine that `boot` names.
    """

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
class Statistic:
    """Where one job stood at a moment. `id` grows with every statistic that is written; 0 before that."""

    campaign: int
    target: str
    planted: str
    backend: str
    engine: str
    seed: int
    number: int
    wall: float
    elapsed: float
    cases: int
    cases_per_second: float
    findings: int
    worst: float
    coverage: float
    id: int = 0


@dataclass(frozen=True)
class Coverage:
    """What the cases of one job had reached at a moment, out of all lines, branches and masks of its code.

    `number` counts the job's slices, `blockers` is what was never tried, as ``fuzz coverage --json`` lists it.
    """

    campaign: int
    target: str
    planted: str
    backend: str
    engine: str
    seed: int
    number: int
    wall: float
    elapsed: float
    cases: int
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
class Finding:
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
class Occurrence:
    """One time that a finding was seen: in one slice of a campaign, or recorded by its entry. `key` makes it unique.

    `new` is whether the finding was saved then for the first time.
    """

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
class FormerId:
    """An id that a finding had until a smaller case replaced its entry; `finding` is its id now."""

    id: str
    finding: str


@dataclass(frozen=True)
class Submission:
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


def check_types(record: R) -> R:
    """The record. TypeError names a field that does not have its type, as a database that was damaged may give."""
    kind: Any = type(record)
    for name, types in _field_types(kind).items():
        if not isinstance(value := getattr(record, name), types):
            raise TypeError(f"{name} is {value!r:.60}")
    return record


@cache
def _field_types(record: type) -> dict[str, tuple[type, ...]]:
    return {name: PYTHON_TYPES.get(hint, (hint,)) for name, hint in get_type_hints(record).items()}
