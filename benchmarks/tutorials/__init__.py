"""Triton's tutorials, run on the cpu backend from a checkout of Triton."""
