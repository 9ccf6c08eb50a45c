"""Judges implementations that are registered for operations of PyTorch, with inputs from PyTorch's own test-suite."""
