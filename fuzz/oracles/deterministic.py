"""deterministic: runs of one case have the same bits. On `cpu` each run permutes the order of the programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import Asking, Rerun, Several, answered, together, values_of
from fuzz.oracles.comparison.bits import compare_bits
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target

ORDERS = (-1, 1, 2)
"""Program orders of the runs that are compared with the first: reversed, then permuted."""


class Deterministic:
    name = "deterministic"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        return target.deterministic and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        return answered(exam, self.asks(exam))

    def asks(self, exam: Examination) -> Asking:
        first = exam.returned.calls[-1].outputs
        for order in ORDERS:
            again = yield Rerun(order=order, pairs=together)
            if again is None:
                continue
            found = compare_bits("deterministic", "when the same call runs again", together(first, again))
            if found:
                return found
        return None

    def asks_together(self, exams: Sequence[Examination]) -> Iterator[Several]:
        values = values_of(exams)
        for order in ORDERS:
            yield Several(Rerun(order=order, pairs=together), range(len(exams)), values)
