"""Sweeps every value of a dtype in one argument of an elementwise target, against the correctly rounded result."""

from fuzz.sweep.plan import SweepPlan, make_plan
from fuzz.sweep.sweep_counts import REGIONS, SweepCounts, WrongValue

__all__ = ["REGIONS", "SweepCounts", "SweepPlan", "WrongValue", "make_plan"]
