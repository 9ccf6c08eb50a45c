"""Compares what an empty cache costs with another checkout of this project: see `__main__.py`."""
