"""Derives the store's tables from its records. A change of a record needs a migration in `migrations/versions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import sqlalchemy as sa

from fuzz.campaign.store.records import (
    JOB_KEY,
    Campaign,
    Coverage,
    Finding,
    FormerId,
    Heartbeat,
    Job,
    Occurrence,
    Statistic,
    Submission,
)

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


TYPES: dict[Any, Any] = {
    int: LONG, int | None: LONG, float: sa.Double, str: StoredText, bool: sa.Boolean, tuple[str, ...]: TextTuple,
    Mapping[str, int]: StoredMapping, Mapping[str, str]: StoredMapping,
}  # fmt: skip
metadata = sa.MetaData()


def _table(name: str, record: type, /, *extra: Any, key: tuple[str, ...] = (), **types: Any) -> sa.Table:
    """The table with a column for each field of a record; `types` are other types than those of `TYPES`."""
    columns = [
        sa.Column(field, types.get(field, TYPES[hint]), primary_key=field in key, nullable=hint == int | None)
        for field, hint in get_type_hints(record).items()
    ]
    return sa.Table(name, metadata, *columns, *extra)


def _campaign() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["campaign"], ["campaigns.id"])


CAMPAIGNS = _table("campaigns", Campaign, sa.Index("ix_campaigns_name", "name"), key=("id",), name=sa.String(200))
JOBS = _table("lanes", Job, _campaign(), key=JOB_KEY)
HEARTBEATS = _table("heartbeats", Heartbeat, _campaign(), key=("campaign", "worker"))
STATISTICS = _table("statistics", Statistic, _campaign(), sa.UniqueConstraint(*JOB_KEY, "number"), key=("id",))
COVERAGES = _table("coverages", Coverage, _campaign(), sa.UniqueConstraint(*JOB_KEY, "number"), key=("id",))
FINDINGS = _table(
    "findings",
    Finding,
    sa.Index("findings_by_target", "target"),
    sa.Index("findings_by_last_seen", "last_seen"),
    key=("id",),
)
OCCURRENCES = _table(
    "occurrences",
    Occurrence,
    sa.Column("id", LONG, primary_key=True),
    _campaign(),
    sa.ForeignKeyConstraint(["finding"], ["findings.id"], onupdate="CASCADE", ondelete="CASCADE"),
    sa.Index("occurrences_by_finding", "finding"),
    sa.UniqueConstraint("finding", "key"),
)
FORMER_IDS = _table(
    "former_ids",
    FormerId,
    sa.ForeignKeyConstraint(["finding"], ["findings.id"], onupdate="CASCADE", ondelete="CASCADE"),
    sa.Index("former_ids_by_finding", "finding"),
    key=("id",),
)
SUBMISSIONS = _table(
    "submissions",
    Submission,
    sa.Index("submissions_by_created", "created"),
    sa.Index("submissions_by_state", "state"),
    key=("id",),
)
TABLES: dict[type, sa.Table] = {
    Campaign: CAMPAIGNS, Job: JOBS, Heartbeat: HEARTBEATS, Statistic: STATISTICS, Finding: FINDINGS,
    Occurrence: OCCURRENCES, Submission: SUBMISSIONS, Coverage: COVERAGES,
}  # fmt: skip
