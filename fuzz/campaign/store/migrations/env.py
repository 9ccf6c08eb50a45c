"""Env: what alembic runs; the connection comes from `fuzz.campaign.store.schema`, which has the store open."""

from __future__ import annotations

from alembic import context

from fuzz.campaign.store.tables import Table

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Table.metadata)
context.run_migrations()
