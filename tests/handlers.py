"""Handlers of findings whose triage finds no smaller case."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bugs import wrong_value

from fuzz.model.case import Case
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.run.findings.finding_handler import Disagreement, FindingHandler
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import Trigger
from fuzz.worker.protocol import Report, WorkerConfig


class NothingSmaller(Triage):
    """Triage that finds no smaller case, of a launcher that is always wrong."""

    def shrink(self, bug: Bug, budget: Budget) -> None:
        """Leaves the case as it is."""

    def certify(self, bug: Bug) -> None:
        """Leaves the finding as it is."""

    def explain(self, bug: Bug) -> None:
        """Says nothing."""

    def find_triggers(self, bug: Bug) -> tuple[Trigger, ...]:
        bug.triggers = ()
        return bug.triggers

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        return Report("returned", False, (wrong_value("dx", "dbias", "dweight"),), ORACLE_NAMES)


def make_handler(target: Target, folder: Path, **how: Any) -> FindingHandler:
    """A handler whose triage finds no smaller case."""
    worker: Any = SimpleNamespace(timeout=1.0)
    config, options = WorkerConfig(target.name, None, "cpu"), RunOptions(target.name, corpus=folder)
    triage = NothingSmaller(target, worker, ())
    how = {"with_cross_checks": False, "with_grades": False, **how}
    return FindingHandler(options, target, config, folder, {}, triage, Watcher(), 0.0, **how)


NUMBERS = count()


def first_seen(bug: Bug) -> Disagreement:
    return Disagreement(next(NUMBERS), 0.0, bug.case, bug.finding)


def take_triage(handler: FindingHandler, triage: Any) -> None:
    """Has a handler and what it hands bugs to use this triage."""
    handler.triage = handler.shrinker.triage = triage
