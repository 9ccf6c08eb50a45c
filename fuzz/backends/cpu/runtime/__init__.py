"""C -> shared object, launched and observed as Triton's runtime expects."""
