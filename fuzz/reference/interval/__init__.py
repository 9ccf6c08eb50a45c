"""Bounds of the exact value of a reference, by interval arithmetic in float64: fast, and proven."""

from fuzz.reference.interval.evaluate import Interval, evaluate_intervals

__all__ = ["Interval", "evaluate_intervals"]
