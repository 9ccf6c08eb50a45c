"""Store: what campaigns write and services read, in SQLite or PostgreSQL. Values go in and out, never rows.

Every write may be repeated: it names what it writes by a key of its own, so that one that was sent twice, because
nobody knows whether it arrived, counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fuzz.campaign.store.records import Campaign, Finding, Heartbeat, Job, Occurrence, Statistic
from fuzz.campaign.store.schema import connect, describe_error, display_url, parse_url
from fuzz.campaign.store.tables import (
    CampaignRow,
    FindingRow,
    HeartbeatRow,
    JobRow,
    OccurrenceRow,
    StatisticRow,
    Table,
)
from fuzz.errors import StoreError

JOB_KEY = ("campaign", "target", "planted", "backend", "engine", "seed")
"""What names a lane."""
Record = TypeVar("Record", Campaign, Finding, Heartbeat, Job, Occurrence, Statistic)


class Store:
    """An open store. StoreError where the database does not answer; a later call tries again."""

    def __init__(self, url: str) -> None:
        self.name = display_url(parse_url(url))
        self._engine = connect(url)
        self._reader = self._engine.execution_options(reads=True)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What campaigns write.

    def create_campaign(self, name: str, config: str, corpus: str, wall: float, host: str, pid: int) -> Campaign:
        """A new campaign, running."""
        row = {"name": name, "config": config, "corpus": corpus, "created": wall, "updated": wall, "host": host}
        row |= {"pid": pid, "state": "running", "seconds": 0.0, "cases": 0, "folder": "", "note": ""}
        with self._session() as session:
            number = session.execute(insert(CampaignRow).values(**row).returning(CampaignRow.id)).scalar_one()
        return Campaign(id=number, **row)  # type: ignore[arg-type]

    def save_campaign(self, campaign: Campaign) -> None:
        """Writes everything that a campaign tells about itself."""
        with self._session() as session:
            self._put(session, CampaignRow, asdict(campaign), ("id",))

    def save_job(self, lane: Job) -> None:
        with self._session() as session:
            self._put(session, JobRow, asdict(lane), JOB_KEY)

    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        with self._session() as session:
            self._put(session, HeartbeatRow, asdict(heartbeat), ("campaign", "worker"))

    def remove_heartbeat(self, campaign: int, worker: str) -> None:
        """Takes a worker that ended as it should off the list."""
        with self._session() as session:
            session.execute(
                delete(HeartbeatRow).where(HeartbeatRow.campaign == campaign, HeartbeatRow.worker == worker)
            )

    def save_statistic(self, statistic: Statistic) -> None:
        """Writes one statistic; its number is its lane's own."""
        values = asdict(statistic)
        del values["id"]
        with self._session() as session:
            self._put(session, StatisticRow, values, (*JOB_KEY, "number"))

    def save_finding(self, finding: Finding, occurrence: Occurrence | None = None, replaces: str = "") -> None:
        """Writes a finding, and one time that it was seen. `replaces` is the id of a larger case of the same cause."""
        values = asdict(finding)
        with self._session() as session:
            if replaces and replaces != finding.id:
                self._rename(session, replaces, finding)
            old = session.get(FindingRow, finding.id)
            if old is not None:
                values["first_seen"] = min(old.first_seen, finding.first_seen)
                values["last_seen"] = max(old.last_seen, finding.last_seen)
                values["replayed"] = finding.replayed or old.replayed
            self._put(session, FindingRow, values, ("id",))
            if occurrence is not None:
                self._put(session, OccurrenceRow, asdict(occurrence), ("finding", "key"))
            self._recount(session, finding.id)

    def _rename(self, session: Session, old: str, new: Finding) -> None:
        """Moves a finding's row, or its occurrences where the new one has a row."""
        if session.get(FindingRow, new.id) is None:
            session.execute(update(FindingRow).where(FindingRow.id == old).values(id=new.id))
            session.expire_all()
            return
        there = select(OccurrenceRow.key).where(OccurrenceRow.finding == new.id)
        moved = update(OccurrenceRow).where(OccurrenceRow.finding == old, OccurrenceRow.key.not_in(there))
        session.execute(moved.values(finding=new.id))
        session.execute(delete(FindingRow).where(FindingRow.id == old))

    def _recount(self, session: Session, finding: str) -> None:
        """A finding's hits are those of its occurrences, so that a write that is repeated adds none."""
        hits = select(func.coalesce(func.sum(OccurrenceRow.hits), 0)).where(OccurrenceRow.finding == finding)
        session.execute(update(FindingRow).where(FindingRow.id == finding).values(hits=hits.scalar_subquery()))

    def save_replay(self, finding: str, outcome: str) -> None:
        """Notes what came of replaying a finding's entry: ``disagrees`` or ``agrees``."""
        with self._session() as session:
            session.execute(update(FindingRow).where(FindingRow.id == finding).values(replayed=outcome))

    def remove_finding(self, finding: str) -> None:
        """Removes a finding whose entry is gone, with its occurrences."""
        with self._session() as session:
            session.execute(delete(FindingRow).where(FindingRow.id == finding))

    # What services read.

    def campaigns(self, name: str = "", state: str = "") -> list[Campaign]:
        """Every campaign, or those of a name or in a state, the newest first."""
        asked = select(CampaignRow).order_by(CampaignRow.id.desc())
        return self._all(asked.filter_by(**_given(name=name, state=state)), Campaign)

    def campaign(self, number: int) -> Campaign | None:
        return self._one(select(CampaignRow).where(CampaignRow.id == number), Campaign)

    def jobs(self, campaign: int) -> list[Job]:
        asked = select(JobRow).where(JobRow.campaign == campaign)
        return self._all(asked.order_by(*(getattr(JobRow, name) for name in JOB_KEY)), Job)

    def heartbeats(self, campaign: int | None = None) -> list[Heartbeat]:
        """The last sign of life of every worker; `Heartbeat.age` tells how long ago it was."""
        asked = select(HeartbeatRow).order_by(HeartbeatRow.campaign, HeartbeatRow.worker)
        return self._all(asked.filter_by(**_given(campaign=campaign)), Heartbeat)

    def statistics(self, campaign: int | None = None, after: int = 0, limit: int = 10_000) -> list[Statistic]:
        """Statistics in the order of writing; `after` is the id of the last one that the caller has."""
        asked = select(StatisticRow).where(StatisticRow.id > after).order_by(StatisticRow.id).limit(limit)
        return self._all(asked.filter_by(**_given(campaign=campaign)), Statistic)

    def findings(
        self, *, campaign: int | None = None, text: str = "", limit: int = 1000, offset: int = 0, **equal: str
    ) -> list[Finding]:
        """Findings, the one seen last first. `text` stands in id, message or diagnosis; `campaign` saw them.

        `equal` may be any of corpus, target, oracle, output, symptom, verdict, status, planted, replayed.
        """
        asked = self._matching(select(FindingRow), campaign, text, equal)
        order = asked.order_by(FindingRow.last_seen.desc(), FindingRow.id)
        return self._all(order.limit(limit).offset(offset), Finding)

    def count_findings(self, *, campaign: int | None = None, text: str = "", **equal: str) -> int:
        """How many `findings` there are."""
        asked = self._matching(select(func.count()).select_from(FindingRow), campaign, text, equal)
        with self._session(reads=True) as session:
            return int(session.execute(asked).scalar_one())

    def _matching(self, asked: Select[Any], campaign: int | None, text: str, equal: Mapping[str, str]) -> Select[Any]:
        known = {field.name for field in fields(Finding)}
        for name, value in equal.items():
            if name not in known:
                raise StoreError(f"findings have no {name!r}")
            asked = asked.where(getattr(FindingRow, name) == value)
        if campaign is not None:
            seen = select(OccurrenceRow.finding).where(OccurrenceRow.campaign == campaign)
            asked = asked.where(FindingRow.id.in_(seen))
        if text:
            columns = (FindingRow.id, FindingRow.message, FindingRow.diagnosis)
            tests = [column.icontains(text, autoescape=True) for column in columns]
            asked = asked.where(tests[0] | tests[1] | tests[2])
        return asked

    def finding(self, name: str) -> Finding | None:
        return self._one(select(FindingRow).where(FindingRow.id == name), Finding)

    def occurrences(
        self, finding: str = "", campaign: int | None = None, after: int = 0, limit: int = 1000
    ) -> list[Occurrence]:
        """When a finding was seen, or what a campaign saw, the earliest first."""
        asked = select(OccurrenceRow).where(OccurrenceRow.id > after).order_by(OccurrenceRow.id).limit(limit)
        return self._all(asked.filter_by(**_given(finding=finding, campaign=campaign)), Occurrence)

    # How.

    @contextmanager
    def _session(self, *, reads: bool = False) -> Iterator[Session]:
        """One transaction, kept whole or not at all."""
        try:
            with Session(self._reader if reads else self._engine) as session, session.begin():
                yield session
        except (DBAPIError, OSError) as error:
            raise StoreError(f"store {self.name}: {describe_error(error)}") from None

    def _put(self, session: Session, row: type[Table], values: dict[str, Any], keys: tuple[str, ...]) -> None:
        """Inserts a row, or gives the one with the same key these values."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        rest = {name: value for name, value in values.items() if name not in keys}
        if self._engine.dialect.name == "postgresql":
            into = postgresql.insert(row).values(**values)
            session.execute(into.on_conflict_do_update(index_elements=keys, set_=rest))
        else:
            here = sqlite.insert(row).values(**values)
            session.execute(here.on_conflict_do_update(index_elements=keys, set_=rest))

    def _all(self, asked: Select[Any], kind: type[Record]) -> list[Record]:
        with self._session(reads=True) as session:
            return [_record(row, kind) for row in session.scalars(asked)]

    def _one(self, asked: Select[Any], kind: type[Record]) -> Record | None:
        found = self._all(asked, kind)
        return found[0] if found else None


def _record(row: Any, kind: type[Record]) -> Record:
    values = {field.name: getattr(row, field.name) for field in fields(kind)}
    made: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**made)


def _given(**conditions: Any) -> dict[str, Any]:
    return {name: value for name, value in conditions.items() if value not in ("", None)}
