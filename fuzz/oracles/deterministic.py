"""deterministic: runs of one case have the same bits. On `cpu` each run permutes the order of the programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz.model import oracles
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import RerunOracle
from fuzz.oracles.comparison.bits import Pairs, compare_bits
from fuzz.oracles.examination import Examination, stacked_values
from fuzz.oracles.rerun import Rerun, pair_outputs
from fuzz.oracles.script_check import SavedFinding, ScriptCheck, compare_two_runs
from fuzz.target.spec import Target

ORDERS = (-1, 1, 2)
"""Program orders of the runs that are compared with the first: reversed, then permuted."""


RUN_IN_OTHER_ORDERS = '''
def run_twice():
    """The outputs of two runs, of other bits where any of 40 runs gives others."""
    first = run_call()
    for order in (-1, 1, 2, *range(3, 40)):
        if DEVICE == "cpu":
            with cpu.observe(order=order):
                second = run_call()
        else:
            second = run_call()
        if not all(equal_bits(first[name], second[name]) for name in first):
            break
    return first, second
'''


class Deterministic(RerunOracle):
    spec = oracles.DETERMINISTIC

    def applies(self, target: Target, case: Case) -> bool:
        return target.deterministic and len(case.calls) == 1

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        values = stacked_values(exams)
        for order in ORDERS:
            yield Rerun(range(len(exams)), values, exams[0].plan.last, pair_outputs, self._compare, order)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        return compare_two_runs(saved.finding, RUN_IN_OTHER_ORDERS)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        return compare_bits(self.name, "when the same call runs again", pairs)
