"""Chooses the case that is tried next."""
