"""Declares what the store holds, as frozen dataclasses, and derives its tables from them.

A new table or field needs the next `SCHEMA` of schema.py. A field that is added has a default, which the rows of older
stores take. Wall times are seconds since 1970 and only shown; `seconds` and `elapsed` are seconds of fuzzing, counted
by a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import sqlalchemy as sa

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""SQLite numbers the rows of a table whose key is INTEGER, and such an INTEGER has 64 bits."""


def _storable(value: Any) -> Any:
    """The value, in whose texts what databases do not hold, NUL and lone surrogates, stands as its escape sequence."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if isinstance(value, Mapping):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return list(map(_storable, value)) if isinstance(value, tuple) else value


class StoredText(sa.TypeDecorator[Any]):
    """Storable text."""

    impl: Any = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        return _storable(value)


class StoredJson(StoredText):
    """A tuple as a JSON array, or a mapping as a JSON object, of storable texts."""

    impl = sa.JSON
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        return tuple(value) if isinstance(value, list) else value


Name = Annotated[str, "at most 200 characters"]
TYPES: dict[Any, tuple[Any, tuple[type, ...]]] = {
    int: (LONG, (int,)),
    int | None: (LONG, (int, type(None))),
    float: (sa.Double, (float, int)),
    str: (StoredText, (str,)),
    Name: (sa.String(200), (str,)),
    bool: (sa.Boolean, (bool,)),
    tuple[str, ...]: (StoredJson, (tuple,)),
    Mapping[str, int]: (StoredJson, (dict,)),
    Mapping[str, str]: (StoredJson, (dict,)),
}
"""Type of a field -> (type of its column, Python types of what is read from that)."""
REFERENCES: dict[str, dict[str, Any]] = {"campaign": {}, "finding": {"onupdate": "CASCADE", "ondelete": "CASCADE"}}
"""Field that holds the id of another record -> what the change of that id, or its end, does to what refers to it."""
metadata = sa.MetaData()
TABLES: dict[type[Record], sa.Table] = {}
FIELDS: dict[type[Record], dict[str, Any]] = {}
"""Kind of record -> name of a field -> its type."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """Something that the store holds: makes every subclass a frozen dataclass, and adds its table, if it has a name.

    A record that is written takes the place of the one with the same `KEY`. Records are read in their `ORDER`, where a
    field with a - before its name falls.
    """

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    ORDER: ClassVar[tuple[str, ...]] = ("id",)
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, table: str = "", indices: tuple[str, ...] = (), more: tuple[Any, ...] = ()) -> None:
        dataclass(frozen=True)(cls)
        if table:
            _add_table(table, cls, [*(sa.Index(f"{table}_by_{one}", one) for one in indices), *more])

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values of the fields of `KEY`."""
        return tuple(getattr(self, name) for name in self.KEY)


def _add_table(title: str, kind: type[Record], more: list[Any]) -> None:
    """Adds the table with a column for each field of a record, and what else is given."""
    hints = get_type_hints(kind, include_extras=True)
    FIELDS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    defaults = {one.name: str(one.default) for one in fields(kind) if type(one.default) in (str, int, float)}
    defaults |= {one.name: "[]" for one in fields(kind) if one.default == ()}
    columns = [
        sa.Column(
            name, TYPES[hint][0], nullable=hint == int | None,
            server_default=defaults.get(name) if name != "id" else None,
        )
        for name, hint in FIELDS[kind].items()
    ]  # fmt: skip
    table = TABLES[kind] = sa.Table(title, metadata, *columns, *more)
    for name, rules in REFERENCES.items():
        if name in table.c:
            table.append_constraint(sa.ForeignKeyConstraint([name], [f"{name}s.id"], **rules))
    by_id = "id" in table.c
    table.append_constraint(sa.PrimaryKeyConstraint(*(("id",) if by_id else kind.KEY)))
    if by_id and kind.KEY != ("id",):
        table.append_constraint(sa.UniqueConstraint(*kind.KEY))


class Campaign(Record, table="campaigns", more=(sa.Index("ix_campaigns_name", "name"),)):
    """One run over some targets. `config` is the validated configuration as JSON text, `folder` holds its journals.

    `state` is running (a process works on it), stopped (it can be resumed), finished (its budget is used up) or failed.
    """

    ORDER = ("-id",)

    id: int
    name: Name
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


class Job(JobKey, table="lanes"):
    """How far a job is within its campaign.

    `plan` is the next plan's number, `cells` what has been visited (docs/campaigns.md), `possible` how many cells
    there are. `new`, `known` and `fixed` count findings. `agreeing` and `regressed` are those whose replay in this
    campaign showed another thing than their status said then: open ones that agree, fixed ones that disagree. `note`
    says why a job takes no more slices, if so.
    """

    ORDER = JobKey.KEY

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
    agreeing: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of its cells that a job has visited."""
        return len(self.cells) / self.possible if self.possible else 0.0

    @property
    def rate(self) -> float:
        """Cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0


class Heartbeat(Record, table="heartbeats"):
    """A sign of life of one worker of a campaign; `lane` is the target of its job.

    `ticks` counts from the start of the machine that `boot` names.
    """

    KEY = ORDER = ("campaign", "worker")

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


class Moment(JobKey):
    """A moment of a job, by a `number` that only grows."""

    KEY = (*JobKey.KEY, "number")

    number: int
    wall: float
    elapsed: float
    cases: int


class Statistic(Moment, table="statistics"):
    """Where one job stood at a moment. `id` grows with every statistic that is written; 0 before that."""

    cases_per_second: float
    findings: int
    worst: float
    coverage: float
    id: int = 0


class Coverage(Moment, table="coverages"):
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


class FindingRecord(Record, table="findings", indices=("target", "last_seen")):
    """One finding. `id` is its entry's name without the ending, `path` its file below the folder `corpus`.

    `replayed` is what came of replaying its entry last: nothing yet, ``disagrees`` or ``agrees``. `severity` and
    `input_class` are empty where it is not graded.
    """

    ORDER = ("-last_seen", "id")

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


class Occurrence(Record, table="occurrences", indices=("finding",), more=(sa.Column("id", LONG),)):
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


class FormerId(Record, table="former_ids", indices=("finding",)):
    """An id that a finding had until a smaller case replaced its entry; `finding` is its id now."""

    id: str
    finding: str


class Submission(Record, table="submissions", indices=("created", "state")):
    """A solution that the service was asked to judge. `id` is a hash of everything that is judged.

    `problem` holds the problem's files by name as JSON, `solution` a text, `judgement` the judgement as JSON once there
    is one. `state` is queued, running or judged. `owner` is the process that judges it, `updated` its last sign of
    life, and `tries` counts those that have taken it.
    """

    ORDER = ("-created", "id")

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


def check_types(record: R) -> R:
    """The record. TypeError names a field that does not have its type, as a database that was damaged may give."""
    for name, hint in FIELDS[type(record)].items():
        if not isinstance(value := getattr(record, name), TYPES[hint][1]):
            raise TypeError(f"{name} is {value!r:.60}")
    return record
