"""Measures how far a row's result moves with the batch that it is computed in, layer by layer."""

from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift, make_plan

__all__ = ["BatchDrift", "DriftPlan", "LayerDrift", "make_plan"]
