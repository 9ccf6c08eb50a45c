"""Tables: the store's schema for SQLAlchemy. Every change here needs a migration in `migrations/versions`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

LONG = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers the rows of a table whose key is INTEGER, and such an INTEGER has 64 bits."""


class Table(DeclarativeBase):
    type_annotation_map = {str: Text, float: Double, dict[str, Any]: JSON, list[str]: JSON}


class CampaignRow(Table):
    __tablename__ = "campaigns"
    id: Mapped[int] = mapped_column(LONG, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    config: Mapped[str]
    state: Mapped[str]
    seconds: Mapped[float]
    cases: Mapped[int] = mapped_column(LONG)
    created: Mapped[float]
    updated: Mapped[float]
    corpus: Mapped[str]
    folder: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(LONG)
    note: Mapped[str]


class JobRow(Table):
    __tablename__ = "lanes"
    campaign: Mapped[int] = mapped_column(LONG, ForeignKey("campaigns.id"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    planted: Mapped[str] = mapped_column(primary_key=True)
    backend: Mapped[str] = mapped_column(primary_key=True)
    engine: Mapped[str] = mapped_column(primary_key=True)
    seed: Mapped[int] = mapped_column(LONG, primary_key=True)
    plan: Mapped[int] = mapped_column(LONG)
    cases: Mapped[int] = mapped_column(LONG)
    rejected: Mapped[int] = mapped_column(LONG)
    seconds: Mapped[float]
    slices: Mapped[int] = mapped_column(LONG)
    deaths: Mapped[int] = mapped_column(LONG)
    worst: Mapped[float]
    new: Mapped[int] = mapped_column(LONG)
    known: Mapped[int] = mapped_column(LONG)
    fixed: Mapped[int] = mapped_column(LONG)
    unconfirmed: Mapped[int] = mapped_column(LONG)
    discoveries: Mapped[int] = mapped_column(LONG)
    recent: Mapped[float]
    cells: Mapped[list[str]]
    possible: Mapped[int] = mapped_column(LONG)
    note: Mapped[str]


class HeartbeatRow(Table):
    __tablename__ = "heartbeats"
    campaign: Mapped[int] = mapped_column(LONG, ForeignKey("campaigns.id"), primary_key=True)
    worker: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(LONG)
    state: Mapped[str]
    lane: Mapped[str]
    beats: Mapped[int] = mapped_column(LONG)
    wall: Mapped[float]
    ticks: Mapped[float]
    boot: Mapped[str]


class StatisticRow(Table):
    __tablename__ = "statistics"
    __table_args__ = (UniqueConstraint("campaign", "target", "planted", "backend", "engine", "seed", "number"),)
    id: Mapped[int] = mapped_column(LONG, primary_key=True)
    campaign: Mapped[int] = mapped_column(LONG, ForeignKey("campaigns.id"))
    target: Mapped[str]
    planted: Mapped[str]
    backend: Mapped[str]
    engine: Mapped[str]
    seed: Mapped[int] = mapped_column(LONG)
    number: Mapped[int] = mapped_column(LONG)
    wall: Mapped[float]
    elapsed: Mapped[float]
    cases: Mapped[int] = mapped_column(LONG)
    cases_per_second: Mapped[float]
    findings: Mapped[int] = mapped_column(LONG)
    worst: Mapped[float]
    coverage: Mapped[float]


class FindingRow(Table):
    __tablename__ = "findings"
    __table_args__ = (Index("findings_by_target", "target"), Index("findings_by_last_seen", "last_seen"))
    id: Mapped[str] = mapped_column(primary_key=True)
    corpus: Mapped[str]
    path: Mapped[str]
    target: Mapped[str]
    oracle: Mapped[str]
    output: Mapped[str]
    symptom: Mapped[str]
    message: Mapped[str]
    verdict: Mapped[str]
    status: Mapped[str]
    planted: Mapped[str]
    dims: Mapped[dict[str, Any]]
    elements: Mapped[int] = mapped_column(LONG)
    diagnosis: Mapped[str]
    first_seen: Mapped[float]
    last_seen: Mapped[float]
    hits: Mapped[int] = mapped_column(LONG)
    replayed: Mapped[str]


class OccurrenceRow(Table):
    __tablename__ = "occurrences"
    __table_args__ = (Index("occurrences_by_finding", "finding"), UniqueConstraint("finding", "key"))
    id: Mapped[int] = mapped_column(LONG, primary_key=True)
    finding: Mapped[str] = mapped_column(ForeignKey("findings.id", onupdate="CASCADE", ondelete="CASCADE"))
    key: Mapped[str]
    wall: Mapped[float]
    campaign: Mapped[int | None] = mapped_column(LONG, ForeignKey("campaigns.id"))
    backend: Mapped[str]
    engine: Mapped[str]
    seed: Mapped[int] = mapped_column(LONG)
    case: Mapped[int] = mapped_column(LONG)
    hits: Mapped[int] = mapped_column(LONG)
    new: Mapped[bool]
    seen: Mapped[dict[str, Any]]
