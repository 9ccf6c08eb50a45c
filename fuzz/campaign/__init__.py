"""Campaigns: many targets, many workers, days. What one needs of SQLAlchemy and pydantic is imported by it alone."""
