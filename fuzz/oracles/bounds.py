"""Checks that nothing outside a buffer is read or written, every element of an output is written, no result
depends on unwritten memory, and the programs of a launch do not write different values to one element."""

from __future__ import annotations

from fuzz.backends.execute import run
from fuzz.backends.launcher_allocations import fill_without_poison
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import CallResult, Returned
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.comparison.bits import same_bits
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import COMPARE_WITH_REFERENCE, SavedFinding, ScriptCheck
from fuzz.target.spec import Target

SYMPTOMS = {
    "overflow": "offset-overflow",
    "store": "stray-write",
    "atomic": "stray-write",
    "conflict": "write-conflict",
    "race": "race",
    "load": "stray-read",
    "unwritten": "unwritten-read",
}
"""Of accesses by kind: a case is shown as the first of these, since it may be the cause of the others."""
KINDS = list(SYMPTOMS)


FIND_UNWRITTEN = '''
def check():
    """Looks for elements that nobody wrote, which are NaN."""
    for name, value in run_call().items():
        if value.isnan().any():
            yield f"{name} has elements that were never written: {value.tolist()}"
'''
OBSERVE_ACCESSES = '''
def check():
    """Observes every access on the CPU; on a GPU looks for NaN, which unwritten memory holds."""
    inputs = every_tensor()
    if DEVICE == "cpu":
        with cpu.observe(unwritten=True, conflicts=True, overflow=True) as log:
            run_call(inputs=inputs)
        yield from (str(violation) for violation in log.violations)
        return
    for name, value in run_call(inputs=inputs).items():
        if value.isnan().any():
            yield f"{name} is NaN: {value.tolist()}"
'''


class BoundsOracle(CaseOracle):
    spec = oracle_specs.BOUNDS

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        for index, call in enumerate(exam.returned.calls):
            finding = _find_stray_access(call, index)
            if finding and finding.symptom == SYMPTOMS["unwritten"] and not result_depends_on_unwritten(exam):
                finding = None
            finding = finding or _find_unwritten(call, index)
            if finding:
                return finding
        return None

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.symptom != "unwritten":
            return ScriptCheck(OBSERVE_ACCESSES)
        if saved.target.reference is not None:
            return ScriptCheck(COMPARE_WITH_REFERENCE, values=True)
        return ScriptCheck(FIND_UNWRITTEN)


def result_depends_on_unwritten(exam: Examination) -> bool:
    """Whether what nobody wrote changes a bit of what is returned: lanes that are read with others may be dropped."""
    with fill_without_poison():
        again = run(exam.target, exam.launcher, exam.case.calls, exam.backend)
    if not isinstance(again, Returned):
        return True
    pairs = (
        (output, other.outputs[name])
        for call, other in zip(exam.returned.calls, again.calls, strict=True)
        for name, output in call.outputs.items()
    )
    return any(not bool(same_bits(output, other).all()) for output, other in pairs)


def _find_stray_access(call: CallResult, index: int) -> Finding | None:
    if not call.accesses:
        return None
    access = min(call.accesses, key=lambda one: KINDS.index(one.kind))
    buffers = tuple(dict.fromkeys(access.buffer for access in call.accesses))
    symptom = SYMPTOMS[access.kind]
    return Finding(
        oracle_specs.BOUNDS.name,
        buffers,
        symptom,
        access.where,
        call=index,
        disagreeing=len(call.accesses),
        source_line=access.source_line,
        kinds=tuple(dict.fromkeys((one.buffer, SYMPTOMS[one.kind]) for one in call.accesses)),
    )


def _find_unwritten(call: CallResult, index: int) -> Finding | None:
    if not call.unwritten:
        return None
    elements = tuple(Element(name, place, "never written", "", "") for name, place in call.unwritten.items())
    names = tuple(call.unwritten)
    message = f"{'+'.join(names)}: element {list(elements[0].index)} was never written"
    return Finding(oracle_specs.BOUNDS.name, names, "unwritten", message, elements, call=index)
