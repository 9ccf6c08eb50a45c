"""Describes the oracle by which backends agree within the bound.

Triage compares the backends, each in a process of its own, and files an accuracy finding that only one of them shows
under this oracle.
"""

from __future__ import annotations

from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import COMPARE_WITH_REFERENCE, SavedFinding, ScriptCheck
from fuzz.target.spec import Target


class Parity(CaseOracle):
    spec = oracle_specs.PARITY

    def applies(self, target: Target, case: Case) -> bool:
        return False

    def check_case(self, exam: Examination) -> Finding | None:
        return None

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        return ScriptCheck(COMPARE_WITH_REFERENCE, values=True)
