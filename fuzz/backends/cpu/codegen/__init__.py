"""Tree of operations -> C."""
