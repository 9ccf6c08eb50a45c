"""Decides which plans run although Triton says before that they do not compile.

A plan that runs shows that a kernel does not compile. The hundredth that fails for the same reason shows nothing more
and takes as long as the first. But where plans are compiled ahead nothing is launched, and a launcher that reads what
its kernels wrote may ask for what does not compile there alone: so some plans run although they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.outcome import Raised
from fuzz.worker.protocol import FAULT_SYMPTOMS, Report

FREE = 8
"""One refused plan of so many runs."""
MOST_REASONS = 16
"""Reasons of each of which the first plan runs; they differ in more than numbers."""
COMPILED = ("", FAULT_SYMPTOMS[Raised])
"""Failures of plans whose kernels compiled. One that hung, or ended its process, may have done so before."""
NUMBER = re.compile(r"\d+")


@dataclass
class Refusals:
    """What is known of refused plans. `is_trusted` until one of them has run whose kernels do compile."""

    is_trusted: bool = True
    refused: int = 0
    _reasons: set[str] = field(default_factory=set)
    _running: list[Case] = field(default_factory=list)

    def leaves_out(self, plan: Case, why: str) -> bool:
        """Whether a plan is not to run that is refused for this reason."""
        if not self.is_trusted:
            return False
        self.refused += 1
        reason = NUMBER.sub("", why)
        is_new = reason not in self._reasons and len(self._reasons) < MOST_REASONS
        if is_new or self.refused % FREE == 0:
            self._reasons.add(reason)
            self._running.append(plan)
            return False
        return True

    def learn(self, plan: Case, reports: Sequence[Report]) -> bool:
        """Takes in the reports on a plan; whether refusals are not trusted any more since."""
        before = len(self._running)
        self._running = [one for one in self._running if one is not plan]
        compiled = not reports[0].not_run and reports[0].failure in COMPILED
        if len(self._running) == before or not compiled or not self.is_trusted:
            return False
        self.is_trusted = False
        return True
