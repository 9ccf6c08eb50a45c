"""Computes the trusted value of a target, in float64 with an envelope, or in arbitrary precision."""
