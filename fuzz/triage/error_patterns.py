"""Distinguishes two causes of one output by the pattern of its errors, where one of them shows in every case.

Where the wrong elements of an output are off by one number, or by one factor, in most cases, a case in which they are
off by several has a second cause. The size of the errors does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fuzz.model.finding import PATTERNS, Finding, Pattern

ELEMENTS = 4
"""The least number of wrong elements whose pattern is counted."""
FINDINGS = 6
"""The least number of counted findings by which the usual pattern of a bug, or of a run, is known."""
SHARE = 0.75
"""The share of them that must show it."""
RUN = 0
"""Stands for all findings of a run, in the place of one bug."""


@dataclass
class PatternCounts:
    """How many findings of each bug, by its id, were counted for an output, and how many of them show each pattern."""

    counted: Counter[tuple[int, str]] = field(default_factory=Counter)
    showing: Counter[tuple[int, Pattern]] = field(default_factory=Counter)

    def mark_unlike(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of the next case of a run, each with what is unusual about it."""
        return tuple(replace(finding, unlike=self.find_other(RUN, finding)) for finding in findings)

    def find_other(self, bug: int, finding: Finding) -> Pattern | None:
        """A pattern that a finding does not show, and that most findings of the bug before it did; counts this one."""
        patterns = [(output, name) for output in finding.outputs for name in PATTERNS]
        missing = (one for one in patterns if one not in finding.patterns and self._is_usual(bug, one))
        other = next(missing, None)
        self._count(bug, finding)
        return other

    def _is_usual(self, bug: int, pattern: Pattern) -> bool:
        counted = self.counted[bug, pattern[0]]
        return counted >= FINDINGS and self.showing[bug, pattern] >= SHARE * counted

    def _count(self, bug: int, finding: Finding) -> None:
        for output in finding.outputs:
            shown = [(output, name) for name in PATTERNS if (output, name) in finding.patterns]
            # Equal numbers that should all be one number show every pattern, which distinguishes nothing.
            if finding.disagreeing >= ELEMENTS and len(shown) < len(PATTERNS):
                self.counted[bug, output] += 1
                self.showing.update((bug, pattern) for pattern in shown)
