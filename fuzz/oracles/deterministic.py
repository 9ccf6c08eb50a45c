"""deterministic: runs of one case have the same bits. On `cpu` each run permutes the order of the programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import RerunOracle
from fuzz.oracles.comparison.bits import Pairs, compare_bits
from fuzz.oracles.examination import Examination, stacked_values
from fuzz.oracles.rerun import Rerun, pair_outputs
from fuzz.target.spec import Target

ORDERS = (-1, 1, 2)
"""Program orders of the runs that are compared with the first: reversed, then permuted."""


class Deterministic(RerunOracle):
    name = "deterministic"

    def applies(self, target: Target, case: Case) -> bool:
        return target.deterministic and len(case.calls) == 1

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        values = stacked_values(exams)
        for order in ORDERS:
            yield Rerun(range(len(exams)), values, exams[0].plan.last, pair_outputs, self._compare, order)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        return compare_bits(self.name, "when the same call runs again", pairs)
