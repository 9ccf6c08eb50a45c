"""Triton's own tests of its language, run on the cpu backend from a checkout of Triton."""
