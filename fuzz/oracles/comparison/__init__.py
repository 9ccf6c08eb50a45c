"""Comparison: outputs of a backend against expected ones, element by element."""
