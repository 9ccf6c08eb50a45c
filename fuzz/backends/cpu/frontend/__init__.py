"""TTIR text -> tree of operations."""
