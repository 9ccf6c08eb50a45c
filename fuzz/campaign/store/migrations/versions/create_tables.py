"""Creates the first schema: campaigns, jobs (table `lanes`), heartbeats, statistics, findings and occurrences."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def key() -> sa.Column[int]:
    return sa.Column("id", LONG, primary_key=True)


def of_campaign(**options: bool) -> sa.Column[int]:
    return sa.Column("campaign", LONG, sa.ForeignKey("campaigns.id"), **options)  # type: ignore[arg-type]


def upgrade() -> None:
    _campaigns()
    _findings()


def _campaigns() -> None:
    op.create_table(
        "campaigns",
        key(),
        sa.Column("name", sa.String(200), nullable=False, index=True),
        *columns(sa.Text, "config", "state"),
        *columns(sa.Double, "seconds", "created", "updated"),
        *columns(LONG, "cases", "pid"),
        *columns(sa.Text, "corpus", "folder", "host", "note"),
    )
    op.create_table(
        "lanes",
        of_campaign(primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("target", "planted", "backend", "engine")),
        sa.Column("seed", LONG, primary_key=True),
        *columns(LONG, "plan", "cases", "rejected", "slices", "deaths", "new", "known", "fixed", "unconfirmed"),
        *columns(LONG, "discoveries", "possible"),
        *columns(sa.Double, "seconds", "worst", "recent"),
        *columns(sa.JSON, "cells"),
        *columns(sa.Text, "note"),
    )
    op.create_table(
        "heartbeats",
        of_campaign(primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        *columns(sa.Text, "host", "state", "lane", "boot"),
        *columns(LONG, "pid", "beats"),
        *columns(sa.Double, "wall", "ticks"),
    )
    op.create_table(
        "statistics",
        key(),
        of_campaign(nullable=False),
        *columns(sa.Text, "target", "planted", "backend", "engine"),
        *columns(LONG, "seed", "number", "cases", "findings"),
        *columns(sa.Double, "wall", "elapsed", "cases_per_second", "worst", "coverage"),
        sa.UniqueConstraint("campaign", "target", "planted", "backend", "engine", "seed", "number"),
    )


def _findings() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.Text, primary_key=True),
        *columns(sa.Text, "corpus", "path", "target", "oracle", "output", "symptom", "message", "verdict", "status"),
        *columns(sa.Text, "planted", "diagnosis", "replayed"),
        *columns(sa.JSON, "dims"),
        *columns(LONG, "elements", "hits"),
        *columns(sa.Double, "first_seen", "last_seen"),
    )
    op.create_index("findings_by_target", "findings", ["target"])
    op.create_index("findings_by_last_seen", "findings", ["last_seen"])
    finding = sa.ForeignKey("findings.id", onupdate="CASCADE", ondelete="CASCADE")
    op.create_table(
        "occurrences",
        key(),
        sa.Column("finding", sa.Text, finding, nullable=False),
        *columns(sa.Text, "key", "backend", "engine"),
        *columns(sa.Double, "wall"),
        of_campaign(nullable=True),
        *columns(LONG, "seed", "case", "hits"),
        sa.Column("new", sa.Boolean, nullable=False),
        *columns(sa.JSON, "seen"),
        sa.UniqueConstraint("finding", "key"),
    )
    op.create_index("occurrences_by_finding", "occurrences", ["finding"])
