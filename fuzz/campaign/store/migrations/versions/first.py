"""Creates the first schema: campaigns, jobs (table `lanes`), heartbeats, statistics, findings and occurrences."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def longs(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, LONG, nullable=False) for name in names]


def floats(*names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double, nullable=False) for name in names]


def jsons(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.JSON, nullable=False) for name in names]


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
        *texts("config", "state"),
        *floats("seconds", "created", "updated"),
        *longs("cases", "pid"),
        *texts("corpus", "folder", "host", "note"),
    )
    op.create_table(
        "lanes",
        of_campaign(primary_key=True),
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("target", "planted", "backend", "engine")),
        sa.Column("seed", LONG, primary_key=True),
        *longs("plan", "cases", "rejected", "slices", "deaths", "new", "known", "fixed", "unconfirmed", "discoveries"),
        *longs("possible"),
        *floats("seconds", "worst", "recent"),
        *jsons("cells"),
        *texts("note"),
    )
    op.create_table(
        "heartbeats",
        of_campaign(primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        *texts("host", "state", "lane", "boot"),
        *longs("pid", "beats"),
        *floats("wall", "ticks"),
    )
    op.create_table(
        "statistics",
        key(),
        of_campaign(nullable=False),
        *texts("target", "planted", "backend", "engine"),
        *longs("seed", "number", "cases", "findings"),
        *floats("wall", "elapsed", "cases_per_second", "worst", "coverage"),
        sa.UniqueConstraint("campaign", "target", "planted", "backend", "engine", "seed", "number"),
    )


def _findings() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.Text, primary_key=True),
        *texts("corpus", "path", "target", "oracle", "output", "symptom", "message", "verdict", "status", "planted"),
        *texts("diagnosis", "replayed"),
        *jsons("dims"),
        *longs("elements", "hits"),
        *floats("first_seen", "last_seen"),
    )
    op.create_index("findings_by_target", "findings", ["target"])
    op.create_index("findings_by_last_seen", "findings", ["last_seen"])
    op.create_table(
        "occurrences",
        key(),
        sa.Column(
            "finding",
            sa.Text,
            sa.ForeignKey("findings.id", onupdate="CASCADE", ondelete="CASCADE"),
            nullable=False,
        ),
        *texts("key", "backend", "engine"),
        *floats("wall"),
        of_campaign(nullable=True),
        *longs("seed", "case", "hits"),
        sa.Column("new", sa.Boolean, nullable=False),
        *jsons("seen"),
        sa.UniqueConstraint("finding", "key"),
    )
    op.create_index("occurrences_by_finding", "occurrences", ["finding"])
