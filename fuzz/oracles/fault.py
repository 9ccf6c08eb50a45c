"""fault: the launcher raised, did not compile, or ran out of memory at a size that fits.

A death or a hang is seen from outside the worker, and filed under this oracle as well.
"""

from __future__ import annotations

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target
from fuzz.worker.protocol import fault_finding


class Fault(CaseOracle):
    name = "fault"
    always = True

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        return fault_finding(exam.outcome)
