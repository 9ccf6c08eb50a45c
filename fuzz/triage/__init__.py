"""Triage: from many disagreements to one bug each: confirmed, shrunk, merged."""
