"""Makes cases legal: a kernel may read anywhere when it is given, say, an index that its contract rules out."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.case import Call, Case
from fuzz.target.spec import Target


def make_legal(case: Case, target: Target) -> Case:
    """The case with every argument legal for its dims and options; the same case where all are."""
    for index, call in enumerate(case.calls):
        legal_call = make_call_legal(call, target)
        if legal_call is not call:
            case = case.with_call(index, legal_call)
    return case


def make_call_legal(call: Call, target: Target) -> Call:
    """The call with every argument legal; the same call where all are."""
    for name, declared in target.tensors.items():
        if name in call.arguments:
            value = call.arguments[name]
            values = declared.legal_values(value, call)
            if values is not value.values and values != value.values:
                call = call.with_argument(name, replace(value, values=values))
    return call
