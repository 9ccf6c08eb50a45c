"""Compares outputs of a backend with expected ones, element by element."""
