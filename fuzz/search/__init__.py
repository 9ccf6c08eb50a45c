"""Search: which case is tried next."""
