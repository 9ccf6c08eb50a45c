"""Defines an engine: it proposes the next plans of a run and learns from the reports on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fuzz.model.case import Case
from fuzz.worker.protocol import Report


@dataclass(frozen=True)
class Proposal:
    """A plan, and how many replicas of it are to run together."""

    plan: Case
    replica_count: int = 1


class Engine(Protocol):
    """Proposes plans for ever. Its plans depend on the target, the seed, the dictionary and the reports alone."""

    name: str
    joins: int
    """Plans of a run's other engines before its first."""

    def propose(self) -> Proposal:
        """The next plan."""

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """Takes the reports on a plan, its own or another engine's: one a replica, fewer where the run ended before."""

    def close(self) -> None:
        """Ends the processes that the engine has started."""
