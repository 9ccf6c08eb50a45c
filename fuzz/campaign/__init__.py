"""Fuzzes many targets with many workers for days; only modules that need SQLAlchemy or pydantic import them."""
