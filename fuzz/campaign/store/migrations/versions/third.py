"""Adds the severity of findings, and the class of inputs that shows them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("severity", "input_class"):
        op.add_column("findings", sa.Column(name, sa.Text, nullable=False, server_default=""))
