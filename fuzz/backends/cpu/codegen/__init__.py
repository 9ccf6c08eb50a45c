"""Generates the C of a kernel from its tree of operations."""
