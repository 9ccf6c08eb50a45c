"""Checks that runs of one case have the same bits. On `cpu` each run permutes the order of the programs.

Where a program waits for an earlier one, a run in another order does not return (worker/worker_process.py): then the
case runs again in the order of the grid alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz.backends.execute import run
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.outcome import Returned
from fuzz.oracles.base import RerunOracle, name_promise
from fuzz.oracles.comparison.bits import Pairs, compare_bits
from fuzz.oracles.diagnosis.context import name_unshrunk
from fuzz.oracles.execution.examination import Examination, stacked_values
from fuzz.oracles.execution.rerun import Rerun, pair_outputs
from fuzz.oracles.script_check import SavedFinding, ScriptCheck, compare_two_runs
from fuzz.target.spec import Target
from fuzz.worker.child.serve import may_reorder

ORDERS = (-1, 1, 2)
"""Program orders of the runs that are compared with the first: reversed, then permuted."""
RACES = ("race", "conflict")
"""Kinds of accesses whose effect depends on the order of programs."""


RUN_IN_OTHER_ORDERS = '''
def run_twice():
    """The outputs of two runs, of other bits where any of 40 runs gives others."""
    first = run_call()
    for order in (None, -1, 1, 2, *range(3, 39)):
        if DEVICE == "cpu":
            with cpu.observe(order=order):
                second = run_call()
        else:
            second = run_call()
        if not all(equal_bits(first[name], second[name]) for name in first):
            break
    return first, second
'''


class DeterministicOracle(RerunOracle):
    spec = oracle_specs.DETERMINISTIC

    def applies(self, target: Target, case: Case) -> bool:
        return target.deterministic and len(case.calls) == 1

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        values = stacked_values(exams)
        for order in ORDERS if may_reorder() else (None,):
            yield Rerun(range(len(exams)), values, exams[0].plan.last, pair_outputs, self._compare, order)

    def diagnose(self, exam: Examination, least: Examination) -> tuple[str, ...]:
        """The races between programs of a launch, by kernel, line and programs, where the backend can observe them.

        They explain a finding and are none by themselves: what a race decides may not matter to any result.
        """
        if (shown := find_races(least)) or least is exam:
            return shown
        return tuple(name_unshrunk(exam.case.last.dims, race) for race in find_races(exam))

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        return compare_two_runs(saved.finding, RUN_IN_OTHER_ORDERS)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        finding = compare_bits(self.name, "when the same call runs again", pairs)
        return name_promise(finding, exam.target, self.name, "deterministic='why the bits differ'")


def find_races(exam: Examination) -> tuple[str, ...]:
    """The races of a case's last call, as far as the backend observes them."""
    with exam.backend.observe_races():
        outcome = run(exam.target, exam.launcher, exam.case.calls, exam.backend)
    accesses = outcome.calls[-1].accesses if isinstance(outcome, Returned) else ()
    return tuple(dict.fromkeys(access.where for access in accesses if access.kind in RACES))
