"""Holds the result of a run of one target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fuzz.model.finding import REFERENCE, Finding
from fuzz.model.grade import is_at_least
from fuzz.run.derived_rejects import InvalidInputs
from fuzz.run.options import RunOptions
from fuzz.search.statistics import RunStatistics
from fuzz.triage.bug import Bug

WAITS = "short of memory"
"""The activity of a profile that is waiting for what the machine lacks."""
NOTHING_RAN = "the time ended before the first case had run: starting takes seconds, and more on a busy machine"


@dataclass
class Result:
    """The result of a run: the bugs that it hit, known ones among them, and its statistics.

    `calls_cut_off` counts calls that still ran at the end and were killed, `disagreements_cut_off` holds what disagreed
    and was not confirmed before the end, `unexplained_cut_off` what of that inputs have shown that are not extreme and
    no bug may explain. What was cut off of a bug's shrinking is said by the bug.
    `invalid_inputs` are those that no target promises to refuse: they never make a run fail.
    `profile` holds seconds by activity: those of the workers, of shrinking and of the process that draws plans.
    `loaded_anew` says why each clean worker loads the target itself, which may take seconds; empty where none has to.
    `lack` is what the machine lacked the last time that a case could not run, or had to wait; empty where none had to.
    `grid_order_only` says that a program waits for an earlier one, so that other orders of programs were not tried.
    """

    options: RunOptions
    backend: str
    statistics: RunStatistics
    bugs: list[Bug]
    seconds: float
    interrupted: bool = False
    unconfirmed: int = 0
    calls_cut_off: int = 0
    disagreements_cut_off: Sequence[Finding] = ()
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)
    invalid_inputs: InvalidInputs = InvalidInputs()
    loaded_anew: str = ""
    grid_order_only: bool = False
    lack: str = ""
    unexplained_cut_off: Sequence[Finding] = ()

    @property
    def seconds_waited(self) -> float:
        """How long cases waited for what the machine lacked."""
        return self.profile.get(WAITS, 0.0)

    def fails(self, *, only_new: bool = False) -> bool:
        """Whether a finding counts, or a new one if `only_new`, or a disagreement that was not confirmed."""
        if any(bug.counts(self.options.threshold) and not (bug.known and only_new) for bug in self.bugs):
            return True
        return bool(self.counted_unconfirmed)

    @property
    def counted_unconfirmed(self) -> Mapping[str, int]:
        """How many disagreements of each oracle the run fails for, as the time ended before any was confirmed.

        Each counts as a finding that is not graded yet: a run too short to confirm what it saw must not pass. Beside
        findings those count that usual inputs have shown and none of the findings may explain.
        """
        unexplained = () if self.interrupted else self.unexplained_cut_off
        seen = self.disagreements_cut_off if self.nothing_confirmed else unexplained
        severities = ((finding.oracle, unconfirmed_severity(finding)) for finding in seen)
        return Counter(oracle for oracle, severity in severities if is_at_least(severity, self.options.threshold))

    @property
    def nothing_confirmed(self) -> bool:
        """Whether the time ended before anything of what disagreed was confirmed."""
        return bool(self.disagreements_cut_off) and not self.bugs and not self.interrupted


def unconfirmed_severity(finding: Finding) -> str | None:
    """The severity of what was not confirmed, where it cannot be another one; else None, as it is not graded."""
    return "low" if finding.symptom == REFERENCE else None
