"""Defines the events of a run, for what shows, records or reports them."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.run.options import RunOptions
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.worker.protocol import ReplicaGroup


class Watcher:
    """Ignores every event of a run; subclasses override those that they need.

    Those about findings come from the thread of triage, the others from the run's own.
    """

    def on_start(self, options: RunOptions, target: Target, backend: str) -> None:
        """The run begins."""

    def on_left_out(self, reason: str) -> None:
        """An entry of the corpus is not looked at: it cannot be read, or does not fit its target any more."""

    def on_group_start(self, group: ReplicaGroup) -> None:
        """A group of replicas is about to run."""

    def on_group_done(self, group: ReplicaGroup) -> None:
        """A group of replicas has run, and its results are recorded."""

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        """Another group has run. `seconds` are those of fuzzing so far."""

    def on_lack(self, lack: str) -> None:
        """A case could not run for what the machine lacks, for the first time in the run, and waits to run again.

        It comes from either thread.
        """

    def on_end(self, running: Sequence[ReplicaGroup]) -> None:
        """The run ends. Workers were still at the groups `running`, and are killed."""

    def on_disagreement(self, case: Case, finding: Finding, index: int) -> None:
        """Case number `index` disagrees in a way that no bug of the run or the corpus explains."""

    def on_saving(self, bug: Bug, name: str, replaced: str) -> None:
        """The bug's entry is about to be written into a file of a name that none has; `replaced` as in `on_saved`."""

    def on_saved(self, bug: Bug, replaced: str) -> None:
        """The bug's entry was written, or takes the place of another one: `replaced` is the path of that, or empty."""

    def on_removed(self, bug: Bug) -> None:
        """The run ends, and the bug's entry, which it has saved, was removed or replaced meanwhile."""

    def on_shrunk(self, bug: Bug) -> None:
        """A bug is shrunk, explained and saved. Its severity may be known later."""

    def on_merged(self, bug: Bug, index: int) -> None:
        """What case number `index` showed has the cause of a bug, whose entry stays as it is."""

    def on_triaged(self, bug: Bug) -> None:
        """Nothing is left to do of a bug that was saved: it is graded, and other backends have run its case."""

    def on_unconfirmed(self, finding: Finding, index: int, reason: str) -> None:
        """The disagreement of case number `index` is no finding."""

    def on_interrupt(self) -> None:
        """Somebody ends the run before its time: what is cut off from now on is for that reason."""

    def on_cut_off(self, case: Case, finding: Finding, index: int) -> None:
        """The run ended before it was known whether the disagreement of case number `index` is a finding."""
