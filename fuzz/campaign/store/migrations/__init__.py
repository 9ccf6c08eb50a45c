"""Migrates the store from one schema to the next, by alembic when a store is opened."""
