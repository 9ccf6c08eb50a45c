"""Derives the store's tables from its records. A new table or field needs the next `SCHEMA` of schema.py.

A field that is added has a default, which the rows of older stores take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import sqlalchemy as sa

from fuzz.campaign.store import records
from fuzz.campaign.store.records import Record

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


_table("campaigns", records.Campaign, sa.Index("ix_campaigns_name", "name"), name=sa.String(200))
_table("lanes", records.Job, _campaign())
_table("heartbeats", records.Heartbeat, _campaign())
_table("statistics", records.Statistic, _campaign())
_table("coverages", records.Coverage, _campaign())
_table("findings", records.FindingRecord, *_indices("findings", "target", "last_seen"))
_table("occurrences", records.Occurrence, sa.Column("id", LONG), _campaign(), *_finding("occurrences"))
_table("former_ids", records.FormerId, *_finding("former_ids"))
_table("submissions", records.Submission, *_indices("submissions", "created", "state"))
