"""Adds the severity of findings, and the class of inputs that shows them."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    for name in ("severity", "input_class"):
        op.add_column("findings", sa.Column(name, sa.Text, nullable=False, server_default=""))
