"""Compiles the C of kernels, launches them as Triton's runtime expects, and observes what they do."""
