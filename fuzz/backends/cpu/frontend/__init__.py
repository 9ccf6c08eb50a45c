"""Parses TTIR text into a tree of operations."""
