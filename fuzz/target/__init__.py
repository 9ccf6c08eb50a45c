"""Target: what a user declares of a kernel, and how it is found and loaded."""
