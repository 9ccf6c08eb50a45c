"""Reads and writes what campaigns know, in SQLite or PostgreSQL. Records go in and out, never rows.

Every write names what it writes by a key, so that a write that is repeated, because nobody knows whether it arrived,
counts once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, cast, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.pool import PoolProxiedConnection

from fuzz.campaign.store.records import (
    JOB_KEY,
    Campaign,
    Coverage,
    Finding,
    Heartbeat,
    Job,
    JobTotals,
    Occurrence,
    Statistic,
    Submission,
    check_types,
)  # fmt: skip
from fuzz.campaign.store.schema import connect, describe_error, display_url, parse_url
from fuzz.campaign.store.tables import (
    CAMPAIGNS,
    COVERAGES,
    FINDINGS,
    FORMER_IDS,
    HEARTBEATS,
    JOBS,
    OCCURRENCES,
    STATISTICS,
    SUBMISSIONS,
    TABLES,
)
from fuzz.errors import RefusedWrite, StoreError, one_line

CAMPAIGN_LOCK = 0x66757A7B
"""Key of the locks of campaigns in PostgreSQL, beside the campaign's number."""
R = TypeVar("R", Campaign, Coverage, Finding, Heartbeat, Job, Occurrence, Statistic, Submission)


class Store:
    """An open store. StoreError where the database does not answer; a later call tries again.

    RefusedWrite where it answers, and cannot hold what is to be written.
    """

    def __init__(self, url: str) -> None:
        self.name = display_url(parse_url(url))
        self.engine = connect(url)
        self._reader = self.engine.execution_options(reads=True)
        self._watcher: PoolProxiedConnection | None = None

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What campaigns write.

    def create_campaign(self, name: str, config: str, corpus: str, wall: float, host: str, pid: int) -> Campaign:
        """A new campaign, running."""
        campaign = Campaign(0, name, config, "running", 0.0, 0, wall, wall, corpus, "", host, pid)
        values = {name: value for name, value in vars(campaign).items() if name != "id"}
        with self._transaction() as connection:
            number = connection.execute(insert(CAMPAIGNS).values(**values).returning(CAMPAIGNS.c.id)).scalar_one()
        return replace(campaign, id=number)

    def save_campaign(self, campaign: Campaign) -> None:
        """Writes everything that a campaign says about itself."""
        self._save(campaign, ("id",))

    def save_job(self, job: Job) -> None:
        self._save(job, JOB_KEY)

    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._save(heartbeat, ("campaign", "worker"))

    def remove_heartbeat(self, campaign: int, worker: str) -> None:
        """Takes a worker that ended as it should off the list."""
        with self._transaction() as connection:
            here = HEARTBEATS.c.campaign == campaign, HEARTBEATS.c.worker == worker
            connection.execute(delete(HEARTBEATS).where(*here))

    def save_statistic(self, statistic: Statistic) -> None:
        """Writes one statistic; its number is its job's own."""
        self._save(statistic, (*JOB_KEY, "number"))

    def save_coverage(self, coverage: Coverage) -> None:
        """Writes what a job's cases had reached after one of its slices."""
        self._save(coverage, (*JOB_KEY, "number"))

    def save_finding(self, finding: Finding, occurrence: Occurrence | None = None, replaces: str = "") -> None:
        """Writes a finding, and one time that it was seen. `replaces` is the id of a larger case of the same cause."""
        values = asdict(finding)
        with self._transaction() as connection:
            if replaces and replaces != finding.id:
                _rename(connection, replaces, finding.id)
            old = connection.execute(select(FINDINGS).where(FINDINGS.c.id == finding.id)).one_or_none()
            if old is not None:
                values["first_seen"] = min(old.first_seen, finding.first_seen)
                values["last_seen"] = max(old.last_seen, finding.last_seen)
                values["replayed"] = finding.replayed or old.replayed
            _upsert(connection, FINDINGS, values, ("id",))
            if replaces and replaces != finding.id:
                _upsert(connection, FORMER_IDS, {"id": replaces, "finding": finding.id}, ("id",))
            if occurrence is not None:
                _upsert(connection, OCCURRENCES, asdict(occurrence), ("finding", "key"))
            _update_hits(connection, finding.id)

    def save_replay(self, finding: str, outcome: str) -> None:
        """Writes what came of replaying a finding's entry: ``disagrees`` or ``agrees``."""
        with self._transaction() as connection:
            connection.execute(update(FINDINGS).where(FINDINGS.c.id == finding).values(replayed=outcome))

    def remove_finding(self, finding: str) -> None:
        """Removes a finding whose entry is gone, with its occurrences."""
        with self._transaction() as connection:
            connection.execute(delete(FINDINGS).where(FINDINGS.c.id == finding))

    @contextmanager
    def lock_campaign(self, number: int) -> Iterator[bool]:
        """Whether no other process has locked a campaign, which is locked for the `with`.

        Of SQLite every process is on one machine, where the lock of the campaign's folder does the same.
        """
        if self.engine.dialect.name != "postgresql":
            yield True
            return
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            free = connection.execute(select(func.pg_try_advisory_lock(CAMPAIGN_LOCK, number))).scalar_one()
            try:
                yield bool(free)
            finally:
                # The lock belongs to the connection, which must not go back to the pool with it.
                connection.invalidate()

    # What services read.

    def version(self) -> str:
        """Another text after each write: what was read at the same version need not be read again."""
        if self.engine.dialect.name == "postgresql":
            with self._transaction(reads=True) as connection:
                return str(connection.execute(select(func.pg_current_wal_insert_lsn())).scalar_one())
        try:
            # SQLite counts what others than this connection write, which itself writes nothing.
            self._watcher = self._watcher or self.engine.raw_connection()
            return str(self._watcher.cursor().execute("PRAGMA data_version").fetchone()[0])
        except (DBAPIError, sqlite3.Error) as error:
            raise StoreError(f"store {self.name}: {describe_error(error)}") from None

    def campaigns(self, name: str = "", state: str = "") -> list[Campaign]:
        """Every campaign, or those of a name or in a state, the newest first."""
        where = _equal(CAMPAIGNS, name=name, state=state)
        return self._read(Campaign, *where, order=[CAMPAIGNS.c.id.desc()])

    def campaign(self, number: int) -> Campaign | None:
        return next(iter(self._read(Campaign, CAMPAIGNS.c.id == number)), None)

    def jobs(self, campaign: int) -> list[Job]:
        return self._read(Job, JOBS.c.campaign == campaign, order=[JOBS.c[name] for name in JOB_KEY])

    def job_totals(self) -> dict[int, JobTotals]:
        """What the jobs of each campaign add up to, by the campaign's id."""
        job = JOBS.c
        sums = [cast(func.sum(column), BigInteger) for column in (job.new, job.known, job.fixed)]
        query = select(job.campaign, func.count(job.target.distinct()), *sums, func.max(job.worst))
        with self._transaction(reads=True) as connection:
            rows = connection.execute(query.group_by(job.campaign))
            return {campaign: JobTotals(*totals) for campaign, *totals in rows}

    def heartbeats(self, campaign: int | None = None) -> list[Heartbeat]:
        """The last sign of life of every worker; `Heartbeat.age` is how long ago it was."""
        order = [HEARTBEATS.c.campaign, HEARTBEATS.c.worker]
        return self._read(Heartbeat, *_equal(HEARTBEATS, campaign=campaign), order=order)

    def statistics(self, campaign: int | None = None, after: int = 0, limit: int = 10_000) -> list[Statistic]:
        """Statistics in the order of writing; `after` is the id of the last one that the caller has."""
        where = STATISTICS.c.id > after, *_equal(STATISTICS, campaign=campaign)
        return self._read(Statistic, *where, order=[STATISTICS.c.id], limit=limit)

    def coverages(self, campaign: int, limit: int = 10_000) -> list[Coverage]:
        """What the jobs of a campaign had reached, in the order of writing."""
        return self._read(Coverage, COVERAGES.c.campaign == campaign, order=[COVERAGES.c.id], limit=limit)

    def findings(
        self, *, campaign: int | None = None, text: str = "", limit: int = 1000, offset: int = 0, **equal: str
    ) -> list[Finding]:
        """Findings, the one seen last first. `text` stands in id, message or diagnosis; `campaign` saw them.

        `equal` may be any of corpus, target, oracle, output, symptom, severity, verdict, status, planted, replayed.
        """
        order = [FINDINGS.c.last_seen.desc(), FINDINGS.c.id]
        where = _matching(campaign, text, equal)
        return self._read(Finding, *where, order=order, limit=limit, offset=offset)

    def count_findings(self, *, campaign: int | None = None, text: str = "", **equal: str) -> int:
        """How many `findings` there are."""
        query = select(func.count()).select_from(FINDINGS).where(*_matching(campaign, text, equal))
        with self._transaction(reads=True) as connection:
            return int(connection.execute(query).scalar_one())

    def count_by_campaign(self) -> dict[int, int]:
        """How many findings each campaign saw, by its id; those that saw none are left out."""
        campaign = OCCURRENCES.c.campaign
        query = select(campaign, func.count(OCCURRENCES.c.finding.distinct())).where(campaign.is_not(None))
        with self._transaction(reads=True) as connection:
            rows = connection.execute(query.group_by(campaign))
            return {int(number): int(count) for number, count in rows}

    def finding(self, name: str) -> Finding | None:
        return next(iter(self._read(Finding, FINDINGS.c.id == name)), None)

    def current_id(self, former: str) -> str:
        """The id of the finding that had another one until a smaller case replaced its entry; empty where none had."""
        query = select(FORMER_IDS.c.finding).where(FORMER_IDS.c.id == former)
        with self._transaction(reads=True) as connection:
            return connection.execute(query).scalar_one_or_none() or ""

    def occurrences(
        self, finding: str = "", campaign: int | None = None, after: int = 0, limit: int = 1000
    ) -> list[Occurrence]:
        """When a finding was seen, or what a campaign saw, the earliest first."""
        where = OCCURRENCES.c.id > after, *_equal(OCCURRENCES, finding=finding, campaign=campaign)
        return self._read(Occurrence, *where, order=[OCCURRENCES.c.id], limit=limit)

    # Submissions.

    def add_submission(self, submission: Submission) -> Submission:
        """The submission of that id as it is stored: the first one that came."""
        with self._transaction() as connection:
            _insert_new(connection, SUBMISSIONS, asdict(submission), ("id",))
        return self.submission(submission.id) or submission

    def submission(self, key: str) -> Submission | None:
        return next(iter(self._read(Submission, SUBMISSIONS.c.id == key)), None)

    def submissions(self, state: str = "", limit: int = 100, offset: int = 0) -> list[Submission]:
        """Every submission, or those in a state, the newest first."""
        order = [SUBMISSIONS.c.created.desc(), SUBMISSIONS.c.id]
        return self._read(Submission, *_equal(SUBMISSIONS, state=state), order=order, limit=limit, offset=offset)

    def count_submissions(self) -> dict[str, int]:
        """How many submissions there are in each state."""
        query = select(SUBMISSIONS.c.state, func.count()).group_by(SUBMISSIONS.c.state)
        with self._transaction(reads=True) as connection:
            return {state: int(count) for state, count in connection.execute(query)}

    def take_submission(self, owner: str, wall: float) -> Submission | None:
        """The submission that waits for longest, which is the owner's from now on; None where none waits."""
        column = SUBMISSIONS.c
        first = select(column.id).where(column.state == "queued").order_by(column.created, column.id).limit(1)
        with self._transaction() as connection:
            # Of several processes that take one on a server only one gets each row.
            key = connection.execute(first.with_for_update(skip_locked=True)).scalar_one_or_none()
            if key is not None:
                taken = {"state": "running", "owner": owner, "updated": wall, "tries": column.tries + 1}
                connection.execute(update(SUBMISSIONS).where(column.id == key).values(**taken))
        return self.submission(key) if key is not None else None

    def beat_submission(self, key: str, owner: str, wall: float) -> None:
        """A sign of life of the process that judges a submission."""
        self._change_submission(key, owner, updated=wall)

    def release_submission(self, key: str, owner: str) -> None:
        """Has a submission judged by somebody else."""
        self._change_submission(key, owner, state="queued", owner="")

    def finish_submission(self, key: str, owner: str, verdict: str, judgement: str, wall: float) -> None:
        """Writes the judgement of a submission, unless it is somebody else's by now."""
        self._change_submission(key, owner, state="judged", verdict=verdict, judgement=judgement, updated=wall)

    def _change_submission(self, key: str, holder: str, /, **values: Any) -> None:
        here = SUBMISSIONS.c.id == key, SUBMISSIONS.c.owner == holder, SUBMISSIONS.c.state == "running"
        with self._transaction() as connection:
            connection.execute(update(SUBMISSIONS).where(*here).values(**values))

    # How.

    @contextmanager
    def _transaction(self, *, reads: bool = False) -> Iterator[Connection]:
        """One transaction, kept whole or not at all."""
        try:
            with (self._reader if reads else self.engine).begin() as connection:
                yield connection
        except (DataError, IntegrityError) as error:
            raise RefusedWrite(f"store {self.name}: {describe_error(error)}") from None
        except (OverflowError, UnicodeEncodeError) as error:
            # SQLite's driver says so of numbers of more than 64 bits.
            raise RefusedWrite(f"store {self.name}: {one_line(error)}") from None
        except (DBAPIError, OSError, UnicodeDecodeError) as error:
            raise StoreError(f"store {self.name}: {describe_error(error)}") from None

    def _save(self, record: Any, key: tuple[str, ...]) -> None:
        values = {name: value for name, value in vars(record).items() if name != "id" or "id" in key}
        with self._transaction() as connection:
            _upsert(connection, TABLES[type(record)], values, key)

    def _read(
        self, kind: type[R], *where: ColumnElement[bool], order: Any = (), limit: int | None = None, offset: int = 0
    ) -> list[R]:
        table = TABLES[kind]
        query = select(*(table.c[field.name] for field in fields(kind))).where(*where).order_by(*order)
        with self._transaction(reads=True) as connection:
            result = connection.execute(query.limit(limit).offset(offset)).mappings()
            try:
                return [check_types(kind(**row)) for row in result]
            except (ValueError, TypeError) as error:
                damage = f"the table {table.name} is damaged: {one_line(error)}"
                raise StoreError(f"store {self.name}: {damage}; fuzz store rebuild makes findings again") from None


def _upsert(connection: Connection, table: Table, values: dict[str, Any], key: tuple[str, ...]) -> None:
    """Inserts a row, or gives the one with the same key these values."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    changed = {name: value for name, value in values.items() if name not in key}
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_update(index_elements=key, set_=changed))


def _insert_new(connection: Connection, table: Table, values: dict[str, Any], key: tuple[str, ...]) -> None:
    """Inserts a row where none has the same key."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_nothing(index_elements=key))


def _rename(connection: Connection, old: str, new: str) -> None:
    """Moves a finding's row, or its occurrences where the new one has a row."""
    if connection.execute(select(FINDINGS.c.id).where(FINDINGS.c.id == new)).one_or_none() is None:
        connection.execute(update(FINDINGS).where(FINDINGS.c.id == old).values(id=new))
        return
    keys = select(OCCURRENCES.c.key).where(OCCURRENCES.c.finding == new)
    moved = OCCURRENCES.c.finding == old, OCCURRENCES.c.key.not_in(keys)
    connection.execute(update(OCCURRENCES).where(*moved).values(finding=new))
    connection.execute(update(FORMER_IDS).where(FORMER_IDS.c.finding == old).values(finding=new))
    connection.execute(delete(FINDINGS).where(FINDINGS.c.id == old))


def _update_hits(connection: Connection, finding: str) -> None:
    """A finding's hits are those of its occurrences, so that a write that is repeated adds none."""
    hits = select(func.coalesce(func.sum(OCCURRENCES.c.hits), 0)).where(OCCURRENCES.c.finding == finding)
    connection.execute(update(FINDINGS).where(FINDINGS.c.id == finding).values(hits=hits.scalar_subquery()))


def _equal(table: Table, **values: Any) -> list[ColumnElement[bool]]:
    return [table.c[name] == value for name, value in values.items() if value not in ("", None)]


def _matching(campaign: int | None, text: str, equal: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """The conditions of `Store.findings`."""
    for name in equal:
        if name not in FINDINGS.c:
            raise StoreError(f"findings have no {name!r}")
    where = [FINDINGS.c[name] == value for name, value in equal.items()]
    if campaign is not None:
        seen = select(OCCURRENCES.c.finding).where(OCCURRENCES.c.campaign == campaign)
        where.append(FINDINGS.c.id.in_(seen))
    if text:
        columns = FINDINGS.c.id, FINDINGS.c.message, FINDINGS.c.diagnosis
        where.append(or_(*(column.icontains(text, autoescape=True) for column in columns)))
    return where
