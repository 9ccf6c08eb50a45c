"""Sweeps every value of a dtype in one argument of an elementwise target, against the correctly rounded result."""

from fuzz.sweep.plan import SweepPlan, make_plan
from fuzz.sweep.sweep_counts import SweepCounts

__all__ = ["SweepCounts", "SweepPlan", "make_plan"]
