"""Sweep: every value of a dtype in one argument of an elementwise target, against the correctly rounded result."""

from fuzz.sweep.counts import REGIONS, Tally, Wrong
from fuzz.sweep.plan import Plan, planned

__all__ = ["REGIONS", "Plan", "Tally", "Wrong", "planned"]
