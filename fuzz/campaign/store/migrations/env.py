"""Runs the migrations for alembic, over the connection that `fuzz.campaign.store.schema` has opened."""

from __future__ import annotations

from alembic import context

from fuzz.campaign.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
context.run_migrations()
