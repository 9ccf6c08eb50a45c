"""Tells two causes of one output apart by a pattern of the errors, where one of them shows in every case.

Where most cases show an output that is off by one number, or by one factor, in all its wrong elements, a case in which
they are off by several has another cause beside. How large the errors are does not matter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fuzz.model.finding import PATTERNS, Finding, Pattern

ELEMENTS = 4
"""Wrong elements from which on a pattern says something."""
FINDINGS = 6
"""Findings from which on it is known which pattern a bug has."""
SHARE = 0.75
"""The share of them that must show it."""


@dataclass
class PatternCounts:
    """How many findings of each bug tell a pattern of an output's errors, and how many of them show each one."""

    telling: Counter[tuple[int, str]] = field(default_factory=Counter)
    showing: Counter[tuple[int, Pattern]] = field(default_factory=Counter)

    def find_other(self, bug: int, finding: Finding) -> Pattern | None:
        """A pattern that a finding does not show, and that most findings of the bug before it did; counts this one."""
        patterns = [(output, name) for output in finding.outputs for name in PATTERNS]
        missing = (one for one in patterns if one not in finding.patterns and self._is_usual(bug, one))
        other = next(missing, None)
        self._count(bug, finding)
        return other

    def _is_usual(self, bug: int, pattern: Pattern) -> bool:
        told = self.telling[bug, pattern[0]]
        return told >= FINDINGS and self.showing[bug, pattern] >= SHARE * told

    def _count(self, bug: int, finding: Finding) -> None:
        for output in finding.outputs:
            shown = [(output, name) for name in PATTERNS if (output, name) in finding.patterns]
            # Equal numbers that should be equal, too, are alike in all patterns.
            if finding.disagreeing >= ELEMENTS and len(shown) < len(PATTERNS):
                self.telling[bug, output] += 1
                self.showing.update((bug, pattern) for pattern in shown)
