"""Sweeps every value of a dtype in one argument of an elementwise target, against the correctly rounded result."""
