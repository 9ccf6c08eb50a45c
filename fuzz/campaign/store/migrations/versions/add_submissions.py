"""Adds submissions: solutions that the service was asked to judge, with their judgements."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "submissions",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "format", "problem", "solution", "backend")),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("seconds", "created", "updated")),
        *(sa.Column(name, LONG, nullable=False) for name in ("seed", "memory", "tries")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("state", "owner", "verdict", "judgement")),
    )
    op.create_index("submissions_by_created", "submissions", ["created"])
    op.create_index("submissions_by_state", "submissions", ["state"])
