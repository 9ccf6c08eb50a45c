"""Checks that the same values through other strides, offsets and alignments give results as near as promised.

Compilers order a reduction by layout, so that only a target that says `layout="bitwise"` is asked for the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fuzz.model import oracle_specs
from fuzz.model.case import Call, Case
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.oracles.base import RerunOracle, name_promise
from fuzz.oracles.comparison.bits import Pairs, compare_bits, compare_values
from fuzz.oracles.comparison.error_bounds import output_bounds
from fuzz.oracles.execution.examination import Examination, stacked_values
from fuzz.oracles.execution.rerun import Rerun, pair_outputs, same_bound
from fuzz.oracles.script_check import SavedFinding, ScriptCheck, compare_two_runs
from fuzz.target.spec import Target

CIRCUMSTANCE = "when every argument is contiguous"


RUN_CONTIGUOUS = '''
def run_twice():
    """The outputs, and those where every tensor is contiguous."""
    return run_call(), run_call(changed={name: value.contiguous() for name, value in every_tensor().items()})
'''


class LayoutOracle(RerunOracle):
    spec = oracle_specs.LAYOUT

    def applies(self, target: Target, case: Case) -> bool:
        plain = all(value.layout == CONTIGUOUS for value in case.last.tensors.values())
        comparable = promises_bits(target) or target.reference is not None
        return comparable and len(case.calls) == 1 and not plain

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        call = make_contiguous(exams[0].plan.last)
        values = {name: part.expand(len(exams), *call.shape(name)) for name, part in stacked_values(exams).items()}
        bound_of = None if promises_bits(exams[0].target) else same_bound
        yield Rerun(range(len(exams)), values, call, pair_outputs, self._compare, bound_of=bound_of)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        return compare_two_runs(saved.finding, RUN_CONTIGUOUS)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        if promises_bits(exam.target):
            finding = compare_bits(self.name, CIRCUMSTANCE, pairs)
            return name_promise(finding, exam.target, self.name, "layout='envelope'")
        return compare_values(self.name, CIRCUMSTANCE, pairs, output_bounds(exam))


def promises_bits(target: Target) -> bool:
    return target.layout == "bitwise" and target.deterministic


def make_contiguous(call: Call) -> Call:
    """The call with every tensor contiguous."""
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
    return call
