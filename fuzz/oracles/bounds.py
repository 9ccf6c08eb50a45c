"""bounds: nothing outside a buffer is read or written, and everything inside an output is written."""

from __future__ import annotations

from fuzz.case import Case
from fuzz.finding import Element, Finding
from fuzz.oracles.base import Examination
from fuzz.outcome import CallResult
from fuzz.target import Target


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
    writes = [access for access in call.accesses if access.kind != "load"]
    shown = (writes or list(call.accesses))[0]
    buffers = tuple(dict.fromkeys(access.buffer for access in call.accesses))
    symptom = "stray-write" if writes else "stray-read"
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
