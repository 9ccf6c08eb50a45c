"""Migrations: the steps from one schema of the store to the next, run by alembic when a store is opened."""
