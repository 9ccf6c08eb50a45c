"""Drift: how far a row's result moves with the batch that it is computed in, layer by layer."""

from fuzz.drift.plan import Plan, Row, Rows, planned

__all__ = ["Plan", "Row", "Rows", "planned"]
