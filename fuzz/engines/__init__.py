"""Engines: who proposes the next Case."""

from fuzz.engines.random import RandomEngine

ENGINES = ("auto", "random")
"""Names that ``--engine`` takes; ``auto`` is random."""

__all__ = ["ENGINES", "RandomEngine"]
