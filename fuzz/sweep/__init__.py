"""Sweep: every value of a dtype in one argument of an elementwise target, against the correctly rounded result."""

from fuzz.sweep.plan import Plan, planned
from fuzz.sweep.tally import REGIONS, Tally, Wrong

__all__ = ["REGIONS", "Plan", "Tally", "Wrong", "planned"]
