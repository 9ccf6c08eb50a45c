"""Engines: who proposes the next Case."""

from fuzz.engines.base import Engine, Proposal
from fuzz.engines.desk import Desk
from fuzz.engines.random import RandomEngine
from fuzz.errors import UsageError
from fuzz.target import Target

ENGINES = ("auto", "random")
"""Names that ``--engine`` takes; ``auto`` is all that can run, each with the share that it earns."""

__all__ = ["ENGINES", "Desk", "Engine", "Proposal", "RandomEngine", "check_engine", "desk"]


def check_engine(name: str) -> None:
    """UsageError, in one line, for an engine that there is not or that cannot run here."""
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")


def desk(name: str, target: Target, seed: int) -> Desk:
    """The desk of a run with the engine of that name."""
    check_engine(name)
    return Desk([RandomEngine(target, seed)])
