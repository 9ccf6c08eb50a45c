"""bounds: nothing outside a buffer is read or written, everything inside an output is written, nothing is read that
nobody wrote, and the programs of a launch do not write different values to one place."""

from __future__ import annotations

from fuzz.case import Case
from fuzz.finding import Element, Finding
from fuzz.oracles.base import Examination
from fuzz.outcome import CallResult
from fuzz.target import Target

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


class Bounds:
    name = "bounds"
    always = True

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def examine(self, exam: Examination) -> Finding | None:
        for index, call in enumerate(exam.returned.calls):
            found = _strays(call, index) or _unwritten(call, index)
            if found:
                return found
        return None


def _strays(call: CallResult, index: int) -> Finding | None:
    if not call.accesses:
        return None
    shown = min(call.accesses, key=lambda access: KINDS.index(access.kind))
    buffers = tuple(dict.fromkeys(access.buffer for access in call.accesses))
    symptom = SYMPTOMS[shown.kind]
    return Finding(
        "bounds", buffers, symptom, shown.where, call=index, disagreeing=len(call.accesses), place=shown.place
    )


def _unwritten(call: CallResult, index: int) -> Finding | None:
    if not call.unwritten:
        return None
    elements = tuple(Element(name, place, "never written", "", "") for name, place in call.unwritten.items())
    names = tuple(call.unwritten)
    message = f"{'+'.join(names)}: element {list(elements[0].index)} was never written"
    return Finding("bounds", names, "unwritten", message, elements, call=index)
