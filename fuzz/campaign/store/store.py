"""Reads and writes what campaigns know, in SQLite or PostgreSQL. Records go in and out, never rows.

Every write names what it writes by a key, so that a write that is repeated, because nobody knows whether it arrived,
counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import PoolProxiedConnection

from fuzz.campaign.store.schema import connect, database_errors, display_url, parse_url
from fuzz.campaign.store.tables import (
    FIELDS,
    TABLES,
    Campaign,
    Coverage,
    FindingRecord,
    FormerId,
    Heartbeat,
    Job,
    JobKey,
    Occurrence,
    R,
    Record,
    Statistic,
    Submission,
    check_types,
)
from fuzz.errors import RefusedWrite, StoreError, one_line

CAMPAIGN_LOCK = 0x66757A7B
"""Key of the locks of campaigns in PostgreSQL, beside the campaign's number."""
CAMPAIGNS, FINDINGS, OCCURRENCES = TABLES[Campaign], TABLES[FindingRecord], TABLES[Occurrence]
FORMER_IDS, SUBMISSIONS = TABLES[FormerId], TABLES[Submission]
Condition = sa.ColumnElement[bool]


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

    def create_campaign(
        self,
        name: str,
        config: str,
        corpus: str,
        wall: float,
        host: str,
        pid: int,
        name_folder: Callable[[int], str] = lambda number: "",
    ) -> Campaign:
        """A new campaign, running. `name_folder` gives its folder by its number."""
        campaign = Campaign(0, name, config, "running", 0.0, 0, wall, wall, corpus, "", host, pid)
        values = {name: value for name, value in vars(campaign).items() if name != "id"}
        with self._transaction() as connection:
            number = connection.execute(sa.insert(CAMPAIGNS).values(**values).returning(CAMPAIGNS.c.id)).scalar_one()
            campaign = replace(campaign, id=number, folder=name_folder(number))
            _put(connection, campaign)
        return campaign

    def save(self, record: Campaign | Job | Heartbeat | Statistic | Coverage) -> None:
        """Writes a record, in the place of the one with the same key."""
        with self._transaction() as connection:
            _put(connection, record)

    def remove(self, kind: type[Record], **equal: Any) -> None:
        """Removes the records with these values; with a finding its occurrences."""
        self._execute(sa.delete(TABLES[kind]).filter_by(**equal))

    def save_finding(self, finding: FindingRecord, occurrence: Occurrence | None = None, replaces: str = "") -> None:
        """Writes a finding, and one time that it was seen. `replaces` is the id of a larger case of the same cause."""
        with self._transaction() as connection:
            _save_finding(connection, finding, occurrence, replaces)

    def save_findings(self, findings: Sequence[tuple[FindingRecord, Occurrence | None]]) -> list[RefusedWrite | None]:
        """Writes findings in one transaction, which waits for the disk once; of each, why it is refused, if so."""
        refused = list[RefusedWrite | None]()
        with self._transaction() as connection:
            for finding, occurrence in findings:
                try:
                    with database_errors(self.name), connection.begin_nested():
                        _save_finding(connection, finding, occurrence)
                except RefusedWrite as error:
                    refused.append(error)
                else:
                    refused.append(None)
        return refused

    def save_replay(self, finding: str, outcome: str) -> None:
        """Writes what came of replaying a finding's entry: ``disagrees`` or ``agrees``."""
        self._execute(sa.update(FINDINGS).where(FINDINGS.c.id == finding).values(replayed=outcome))

    @contextmanager
    def lock_campaign(self, number: int) -> Iterator[bool]:
        """Whether no other process has locked a campaign, which is locked for the `with`.

        Of SQLite every process is on one machine, where the lock of the campaign's folder does the same.
        """
        if self.engine.dialect.name != "postgresql":
            yield True
            return
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            free = connection.execute(sa.select(sa.func.pg_try_advisory_lock(CAMPAIGN_LOCK, number))).scalar_one()
            try:
                yield bool(free)
            finally:
                # The lock belongs to the connection, which must not go back to the pool with it.
                connection.invalidate()

    # What services read.

    def find(self, kind: type[R], key: str | int) -> R | None:
        """The record of that id, if there is one."""
        return next(iter(self.read(kind, TABLES[kind].c.id == key)), None)

    def read(
        self, kind: type[R], *where: Condition, limit: int | None = None, offset: int = 0, **equal: Any
    ) -> list[R]:
        """The records that fit, in the order of their kind. What `equal` has as empty or None may be anything."""
        table = TABLES[kind]
        where += tuple(table.c[name] == value for name, value in equal.items() if value not in ("", None))
        query = sa.select(*(table.c[name] for name in FIELDS[kind])).where(*where).limit(limit).offset(offset)
        order = [table.c[name[1:]].desc() if name.startswith("-") else table.c[name] for name in kind.ORDER]
        with self._transaction(reads=True) as connection:
            result = connection.execute(query.order_by(*order)).mappings()
            try:
                return [check_types(kind(**row)) for row in result]
            except (ValueError, TypeError) as error:
                damage = f"the table {table.name} is damaged: {one_line(error)}"
                raise StoreError(f"store {self.name}: {damage}; fuzz store rebuild makes findings again") from None

    def statistics(self, campaign: int | None = None, after: int = 0, limit: int = 10_000) -> list[Statistic]:
        """Statistics in the order of writing; `after` is the id of the last one that the caller has."""
        return self.read(Statistic, TABLES[Statistic].c.id > after, limit=limit, campaign=campaign)

    def sample_statistics(self, campaign: int, most: int = 10_000) -> list[Statistic]:
        """About `most` statistics of a campaign, evenly in the order of writing, with the last one of each of its jobs.

        What they add up to in the end is what the jobs have reached.
        """
        column = TABLES[Statistic].c
        here, count = column.campaign == campaign, sa.func.count()
        step = max(1, -(-int(self._value(sa.select(count).select_from(TABLES[Statistic]).where(here))) // most))
        place = (sa.func.row_number().over(order_by=column.id) - 1).label("place")
        placed = sa.select(column.id, place).where(here).subquery()
        evenly = sa.select(placed.c.id).where(placed.c.place % step == 0)
        last = sa.select(sa.func.max(column.id)).where(here).group_by(*(column[name] for name in JobKey.KEY))
        return self.read(Statistic, here, sa.or_(column.id.in_(evenly), column.id.in_(last)))

    def version(self) -> str:
        """Another text after each write: what was read at the same version need not be read again."""
        if self.engine.dialect.name == "postgresql":
            return str(self._value(sa.select(sa.func.pg_current_wal_insert_lsn())))
        with database_errors(self.name):
            # SQLite counts what others than this connection write, which itself writes nothing.
            self._watcher = self._watcher or self.engine.raw_connection()
            return str(self._watcher.cursor().execute("PRAGMA data_version").fetchone()[0])

    def totals(self) -> dict[int, dict[str, Any]]:
        """What the jobs of each campaign add up to, and how many findings it saw, by the campaign's id."""
        job, seen = TABLES[Job].c, OCCURRENCES.c
        targets, worst = sa.func.count(job.target.distinct()).label("targets"), sa.func.max(job.worst).label("worst")
        sums = [sa.cast(sa.func.sum(one), sa.BigInteger).label(one.name) for one in (job.new, job.known, job.fixed)]
        rows = self._rows(sa.select(job.campaign, targets, *sums, worst).group_by(job.campaign))
        found = {row.campaign: dict(row._mapping) for row in rows}
        counts = sa.select(seen.campaign, sa.func.count(seen.finding.distinct())).where(seen.campaign.is_not(None))
        for campaign, count in self._rows(counts.group_by(seen.campaign)):
            found.setdefault(campaign, {})["findings"] = count
        return found

    def findings(
        self, *, campaign: int | None = None, text: str = "", limit: int = 1000, offset: int = 0, **equal: str
    ) -> list[FindingRecord]:
        """Findings, the one seen last first. `text` stands in id, message or diagnosis; `campaign` saw them.

        `equal` may be any of corpus, target, oracle, output, symptom, severity, verdict, status, planted, replayed.
        """
        return self.read(FindingRecord, *_matching(campaign, text, equal), limit=limit, offset=offset)

    def read_findings(self, names: Sequence[str]) -> dict[str, FindingRecord]:
        """The findings that have one of these ids, by id."""
        return {found.id: found for found in self.read(FindingRecord, FINDINGS.c.id.in_(names))}

    def count_findings(self, *, campaign: int | None = None, text: str = "", **equal: str) -> int:
        """How many `findings` there are."""
        count = sa.select(sa.func.count()).select_from(FINDINGS)
        return int(self._value(count.where(*_matching(campaign, text, equal))))

    def current_id(self, former: str) -> str:
        """The id of the finding that had another one until a smaller case replaced its entry; empty where none had."""
        found = self.find(FormerId, former)
        return found.finding if found else ""

    def find_finding(self, name: str) -> FindingRecord | None:
        """The finding that has such an id, or had it until a smaller case replaced its entry."""
        return self.find(FindingRecord, name) or self.find(FindingRecord, self.current_id(name))

    # Submissions.

    def add_submission(self, submission: Submission) -> Submission:
        """The submission of that id as it is stored: the first one that came."""
        with self._transaction() as connection:
            _put(connection, submission, keep=True)
        return self.find(Submission, submission.id) or submission

    def count_submissions(self) -> dict[str, int]:
        """How many submissions there are in each state."""
        state = SUBMISSIONS.c.state
        return {name: int(count) for name, count in self._rows(sa.select(state, sa.func.count()).group_by(state))}

    def take_submission(self, owner: str, wall: float) -> Submission | None:
        """The submission that waits for longest, which is the owner's from now on; None where none waits."""
        column = SUBMISSIONS.c
        first = sa.select(column.id).where(column.state == "queued").order_by(column.created, column.id).limit(1)
        with self._transaction() as connection:
            # Of several processes that take one on a server only one gets each row.
            key = connection.execute(first.with_for_update(skip_locked=True)).scalar_one_or_none()
            if key is not None:
                taken = {"state": "running", "owner": owner, "updated": wall, "tries": column.tries + 1}
                connection.execute(sa.update(SUBMISSIONS).where(column.id == key).values(**taken))
        return self.find(Submission, key) if key is not None else None

    def queue_again(self, key: str, wall: float) -> None:
        """Has a submission that was judged judged once more, behind those that wait."""
        fresh = {"state": "queued", "owner": "", "tries": 0, "verdict": "", "judgement": "", "created": wall}
        judged = SUBMISSIONS.c.id == key, SUBMISSIONS.c.state == "judged"
        self._execute(sa.update(SUBMISSIONS).where(*judged).values(**fresh))

    def update_submission(self, key: str, holder: str, /, **values: Any) -> None:
        """Changes these fields of a submission, unless it is somebody else's by now, or nobody's."""
        here = SUBMISSIONS.c.id == key, SUBMISSIONS.c.owner == holder, SUBMISSIONS.c.state == "running"
        self._execute(sa.update(SUBMISSIONS).where(*here).values(**values))

    # How.

    @contextmanager
    def _transaction(self, *, reads: bool = False) -> Iterator[sa.Connection]:
        """One transaction, kept whole or not at all."""
        with database_errors(self.name), (self._reader if reads else self.engine).begin() as connection:
            yield connection

    def _execute(self, statement: sa.Executable) -> None:
        with self._transaction() as connection:
            connection.execute(statement)

    def _rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        with self._transaction(reads=True) as connection:
            return connection.execute(query).all()

    def _value(self, query: sa.Select[Any]) -> Any:
        return self._rows(query)[0][0]


def _put(connection: sa.Connection, record: Record, *, keep: bool = False) -> None:
    """Writes a record, in the place of the one with the same key, or with `keep` only where there is none."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    values = {name: value for name, value in vars(record).items() if name != "id" or "id" in record.KEY}
    changed = {name: value for name, value in values.items() if name not in record.KEY}
    statement, key = dialect.insert(TABLES[type(record)]).values(**values), {"index_elements": record.KEY}
    connection.execute(
        statement.on_conflict_do_nothing(**key) if keep else statement.on_conflict_do_update(**key, set_=changed)
    )


def _save_finding(
    connection: sa.Connection, finding: FindingRecord, occurrence: Occurrence | None = None, replaces: str = ""
) -> None:
    """`Store.save_finding` in a transaction."""
    renamed = replaces not in ("", finding.id)
    if renamed:
        _rename(connection, replaces, finding.id)
    old = connection.execute(sa.select(FINDINGS).where(FINDINGS.c.id == finding.id)).one_or_none()
    if old is not None:
        first, last = min(old.first_seen, finding.first_seen), max(old.last_seen, finding.last_seen)
        replayed = finding.replayed or old.replayed
        finding = replace(finding, first_seen=first, last_seen=last, replayed=replayed)
    _put(connection, finding)
    if renamed:
        _put(connection, FormerId(replaces, finding.id))
    if occurrence is not None:
        _put(connection, occurrence)
        if renamed and not occurrence.new:
            # What was new to this campaign has become part of a finding that was not.
            known = sa.update(OCCURRENCES).filter_by(finding=finding.id, campaign=occurrence.campaign)
            connection.execute(known.values(new=False))
    _update_hits(connection, finding.id)


def _rename(connection: sa.Connection, old: str, new: str) -> None:
    """Moves a finding's row, or its occurrences where the new one has a row."""
    # Asking first whether the new one has a row would leave another campaign time to write it.
    with suppress(IntegrityError), connection.begin_nested():
        connection.execute(sa.update(FINDINGS).where(FINDINGS.c.id == old).values(id=new))
        return
    first = sa.select(sa.func.min(FINDINGS.c.first_seen)).where(FINDINGS.c.id.in_((old, new)))
    connection.execute(sa.update(FINDINGS).where(FINDINGS.c.id == new).values(first_seen=first.scalar_subquery()))
    keys = sa.select(OCCURRENCES.c.key).where(OCCURRENCES.c.finding == new)
    moved = OCCURRENCES.c.finding == old, OCCURRENCES.c.key.not_in(keys)
    connection.execute(sa.update(OCCURRENCES).where(*moved).values(finding=new))
    connection.execute(sa.update(FORMER_IDS).where(FORMER_IDS.c.finding == old).values(finding=new))
    connection.execute(sa.delete(FINDINGS).where(FINDINGS.c.id == old))


def _update_hits(connection: sa.Connection, finding: str) -> None:
    """A finding's hits are those of its occurrences, so that a write that is repeated adds none."""
    hits = sa.select(sa.func.coalesce(sa.func.sum(OCCURRENCES.c.hits), 0)).where(OCCURRENCES.c.finding == finding)
    connection.execute(sa.update(FINDINGS).where(FINDINGS.c.id == finding).values(hits=hits.scalar_subquery()))


def _matching(campaign: int | None, text: str, equal: Mapping[str, str]) -> list[Condition]:
    """The conditions of `Store.findings`."""
    for name in equal:
        if name not in FINDINGS.c:
            raise StoreError(f"findings have no {name!r}")
    where = [FINDINGS.c[name] == value for name, value in equal.items()]
    if campaign is not None:
        seen = sa.select(OCCURRENCES.c.finding).where(OCCURRENCES.c.campaign == campaign)
        where.append(FINDINGS.c.id.in_(seen))
    if text:
        columns = FINDINGS.c.id, FINDINGS.c.message, FINDINGS.c.diagnosis
        where.append(sa.or_(*(column.icontains(text, autoescape=True) for column in columns)))
    return where
