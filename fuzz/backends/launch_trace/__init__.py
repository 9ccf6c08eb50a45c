"""Repeats the launches of one run on other memory, for many replicas at once."""
