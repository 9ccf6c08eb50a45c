"""Adds coverages: what the cases of a job had reached at moments of a campaign."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
COUNTS = ("lines", "branches", "masks")


def upgrade() -> None:
    job = ("target", "planted", "backend", "engine")
    numbers = ("seed", "number", "cases", "rejected", *(f"{what}_{part}" for what in COUNTS for part in ("run", "all")))
    op.create_table(
        "coverages",
        sa.Column("id", LONG, primary_key=True),
        sa.Column("campaign", LONG, sa.ForeignKey("campaigns.id"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in (*job, "blockers")),
        *(sa.Column(name, LONG, nullable=False) for name in numbers),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("wall", "elapsed")),
        sa.UniqueConstraint("campaign", *job, "seed", "number"),
    )
