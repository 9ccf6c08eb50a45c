"""Sweeps large ranges on a GPU by functions that torch compiles."""
