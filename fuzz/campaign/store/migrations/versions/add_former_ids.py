"""Adds the former ids of findings whose entry a smaller case has replaced."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    finding = sa.ForeignKey("findings.id", onupdate="CASCADE", ondelete="CASCADE")
    op.create_table(
        "former_ids",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("finding", sa.Text, finding, nullable=False),
    )
    op.create_index("former_ids_by_finding", "former_ids", ["finding"])
