"""Repaired bugs of published libraries, found by running their targets on every release."""
