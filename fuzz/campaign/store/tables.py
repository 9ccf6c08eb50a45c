"""Declares what the store holds, as frozen dataclasses, and derives its tables from them.

A new table or field needs the next `SCHEMA` of schema.py. A field that is added has a default, which the rows of older
stores take. Wall times are seconds since 1970 and only shown; `seconds` and `elapsed` are seconds of fuzzing, counted
by a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

import sqlalchemy as sa


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


R = TypeVar("R", bound=Record)
LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""SQLite numbers the rows of a table whose key is INTEGER, and such an INTEGER has 64 bits."""


def _storable(text: str) -> str:
    """The text, in which what databases do not hold, NUL and lone surrogates, stands as its escape sequence."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class StoredText(sa.TypeDecorator[str]):
    """Storable text."""

    impl, cache_ok = sa.Text, True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return value and _storable(value)


class TextTuple(sa.TypeDecorator[tuple[str, ...]]):
    """A tuple of texts as a JSON array."""

    impl, cache_ok = sa.JSON, True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: sa.Dialect) -> list[str]:
        return list(map(_storable, value or ()))

    def process_result_value(self, value: list[str] | None, dialect: sa.Dialect) -> tuple[str, ...]:
        return tuple(value or ())


class StoredMapping(sa.TypeDecorator[Mapping[str, Any]]):
    """A mapping as a JSON object, of storable texts."""

    impl, cache_ok = sa.JSON, True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: sa.Dialect) -> dict[str, Any]:
        items = (value or {}).items()
        return {_storable(key): _storable(item) if isinstance(item, str) else item for key, item in items}


TYPES: dict[Any, tuple[Any, tuple[type, ...]]] = {
    int: (LONG, (int,)),
    int | None: (LONG, (int, type(None))),
    float: (sa.Double, (float, int)),
    str: (StoredText, (str,)),
    bool: (sa.Boolean, (bool,)),
    tuple[str, ...]: (TextTuple, (tuple,)),
    Mapping[str, int]: (StoredMapping, (dict,)),
    Mapping[str, str]: (StoredMapping, (dict,)),
}
"""Type of a field -> (type of its column, Python types of what is read from that)."""
metadata = sa.MetaData()
TABLES: dict[type[Record], sa.Table] = {}
FIELDS: dict[type[Record], dict[str, Any]] = {}
"""Kind of record -> name of a field -> its type."""


def check_types(record: R) -> R:
    """The record. TypeError names a field that does not have its type, as a database that was damaged may give."""
    for name, hint in FIELDS[type(record)].items():
        if not isinstance(value := getattr(record, name), TYPES[hint][1]):
            raise TypeError(f"{name} is {value!r:.60}")
    return record


def _table(title: str, kind: type[Record], /, *extra: Any, **types: Any) -> None:
    """Adds the table with a column for each field of a record; `types` are other types than those of `TYPES`."""
    hints = get_type_hints(kind)
    FIELDS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    defaults = {one.name: str(one.default) for one in fields(kind) if type(one.default) in (str, int, float)}
    columns = [
        sa.Column(
            name, types.get(name, TYPES[hint][0]), nullable=hint == int | None,
            server_default=defaults.get(name) if name != "id" else None,
        )
        for name, hint in FIELDS[kind].items()
    ]  # fmt: skip
    table = TABLES[kind] = sa.Table(title, metadata, *columns, *extra)
    by_id = "id" in table.c
    table.append_constraint(sa.PrimaryKeyConstraint(*(("id",) if by_id else kind.KEY)))
    if by_id and kind.KEY != ("id",):
        table.append_constraint(sa.UniqueConstraint(*kind.KEY))


def _campaign() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["campaign"], ["campaigns.id"])


def _indices(table: str, *columns: str) -> list[sa.Index]:
    return [sa.Index(f"{table}_by_{column}", column) for column in columns]


def _finding(table: str) -> list[Any]:
    key = sa.ForeignKeyConstraint(["finding"], ["findings.id"], onupdate="CASCADE", ondelete="CASCADE")
    return [key, *_indices(table, "finding")]


_table("campaigns", Campaign, sa.Index("ix_campaigns_name", "name"), name=sa.String(200))
_table("lanes", Job, _campaign())
_table("heartbeats", Heartbeat, _campaign())
_table("statistics", Statistic, _campaign())
_table("coverages", Coverage, _campaign())
_table("findings", FindingRecord, *_indices("findings", "target", "last_seen"))
_table("occurrences", Occurrence, sa.Column("id", LONG), _campaign(), *_finding("occurrences"))
_table("former_ids", FormerId, *_finding("former_ids"))
_table("submissions", Submission, *_indices("submissions", "created", "state"))
