"""Measures how far a row's result moves with the batch that it is computed in, layer by layer."""
