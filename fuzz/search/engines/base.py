"""Engine: who proposes the next plans of a run, and learns from the reports on them."""

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
    replicas: int = 1


class Engine(Protocol):
    """Proposes plans for ever. What it proposes depends on the target, the seed and what it was told alone."""

    name: str
    joins: int
    """Plans of a run's other engines before its first."""

    def propose(self) -> Proposal:
        """The next plan."""

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """What came of a plan, its own or another engine's: one report a replica, fewer where the run or it ended."""

    def close(self) -> None:
        """Ends what it has started."""
