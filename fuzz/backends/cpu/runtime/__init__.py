"""Launches kernels as Triton's runtime expects, and observes what they do."""
