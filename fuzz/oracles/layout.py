"""layout: the same values through other strides, offsets and alignments give the same bits, or what is promised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fuzz.model.case import Call, Case
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.oracles.base import Asking, Rerun, Several, answered, together, values_of
from fuzz.oracles.comparison.bits import compare_bits, compare_values
from fuzz.oracles.comparison.envelope import bounds
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target

TOLD = "when every argument is contiguous"


class Layout:
    name = "layout"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        plain = all(value.layout == CONTIGUOUS for value in case.last.tensors.values())
        comparable = target.deterministic or target.reference is not None
        return comparable and len(case.calls) == 1 and not plain

    def examine(self, exam: Examination) -> Finding | None:
        return answered(exam, self.asks(exam))

    def asks(self, exam: Examination) -> Asking:
        call, words = contiguous(exam)
        bits = promises_bits(exam.target)
        again = yield Rerun(call, words=words, pairs=together if bits else None)
        if again is None:
            return None
        pairs = together(exam.returned.calls[-1].outputs, again)
        return compare_bits("layout", TOLD, pairs) if bits else compare_values("layout", TOLD, pairs, bounds(exam))

    def asks_together(self, exams: Sequence[Examination]) -> Iterator[Several]:
        call, shapes = plain(exams[0].plan.last)
        values = {name: part.expand(len(exams), *shapes[name]) for name, part in values_of(exams).items()}
        pairs = together if promises_bits(exams[0].target) else None
        yield Several(Rerun(call, pairs=pairs), range(len(exams)), values)


def promises_bits(target: Target) -> bool:
    return target.layout != "envelope" and target.deterministic


def contiguous(exam: Examination) -> tuple[Call, dict[str, np.ndarray]]:
    """The last call with every tensor contiguous, and the words that keep its values."""
    call, shapes = exam.shared("contiguous", lambda: plain(exam.plan.last))
    return call, {name: np.broadcast_to(exam.words(name), shape) for name, shape in shapes.items()}


def plain(call: Call) -> tuple[Call, dict[str, tuple[int, ...]]]:
    """The call with every tensor contiguous, and their shapes."""
    shapes = {name: call.shape(name) for name in call.tensors}
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
    return call, shapes
