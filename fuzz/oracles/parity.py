"""Checks that other machines agree within the bound: other backends, and one that sums in another order.

Triage compares the backends, each in a process of its own, and files an accuracy finding that only one of them shows
under this oracle. In which order a reduction or a matrix product combines its elements is the machine's choice: where
the backend can permute it, the call runs again in another order. Bits that a target promises are those of one machine:
across orders only the bound is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fuzz.backends.base import Backend
from fuzz.model import oracle_specs
from fuzz.model.case import Case, LaunchOptions
from fuzz.model.finding import Finding
from fuzz.oracles.base import RerunOracle
from fuzz.oracles.comparison.bits import Pairs, compare_values
from fuzz.oracles.comparison.error_bounds import output_bounds
from fuzz.oracles.execution.examination import Examination, stacked_values
from fuzz.oracles.execution.rerun import Rerun, pair_outputs, same_bound
from fuzz.oracles.script_check import COMPARE_WITH_REFERENCE, SavedFinding, ScriptCheck, compare_two_runs
from fuzz.target.spec import Target

ORDER = (1 << 31) - 1
"""The seed of the other order. Its bits are ones: products are summed from the last element to the first."""
RUN_IN_ANOTHER_ORDER = '''
def run_twice():
    """The outputs of two runs, the second of which combines the elements of sums in another order."""
    first = run_call()
    with cpu.knobs.set(reduction_order=ORDER):
        return first, run_call()
'''


class ParityOracle(RerunOracle):
    spec = oracle_specs.PARITY

    def applies(self, target: Target, case: Case) -> bool:
        return target.reference is not None and len(case.calls) == 1

    def runs_on(self, backend: Backend) -> bool:
        return backend.permutes_sums

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        call = exams[0].plan.last
        launch = replace(call.launch or LaunchOptions(), reduction_order=ORDER)
        values = stacked_values(exams)
        again = replace(call, launch=launch)
        yield Rerun(range(len(exams)), values, again, pair_outputs, self._compare, bound_of=same_bound)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.only_on_cpu:
            return ScriptCheck(COMPARE_WITH_REFERENCE, values=True, cpu_only=True)
        return replace(compare_two_runs(saved.finding, RUN_IN_ANOTHER_ORDER, ORDER=ORDER), cpu_only=True)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        return compare_values(self.name, "when its sums are taken in another order", pairs, output_bounds(exam))
