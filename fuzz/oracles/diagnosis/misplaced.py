"""Recognises right values in a wrong place: of another output, transposed, or of an earlier call."""

from __future__ import annotations

from fuzz.oracles.comparison.elements import half_ulp
from fuzz.oracles.diagnosis.context import DiagnosisContext


def match_swapped(context: DiagnosisContext, output: str) -> str:
    """An output that equals what is due for another one."""
    for other, due in context.want.items():
        if other != output and bool(due.any()) and context.fits(output, due, context.bound[other]):
            return f"{output} equals the reference's {other}"
    return ""


def match_transposed(context: DiagnosisContext, output: str) -> str:
    """A matrix of the right elements in column-major order."""
    due = context.want[output]
    if due.dim() < 2:
        return ""
    turned = due.transpose(-1, -2).reshape(due.shape)
    bound = context.bound[output].transpose(-1, -2).reshape(due.shape)
    return f"{output} is transposed" if context.fits(output, turned, bound) else ""


def match_earlier_call(context: DiagnosisContext, output: str) -> str:
    """What was due from an earlier call, in all wrong elements."""
    for place, outputs in enumerate(context.earlier, 1):
        old = outputs.get(output)
        if old is None or old.shape != context.got[output].shape:
            continue
        wrong = context.wrong[output]
        difference = (context.got[output] - old).abs()[wrong]
        allowed = context.bound[output] + 8 * half_ulp(old.abs(), context.kind(output))
        if bool((difference <= allowed[wrong]).all()):
            return f"the wrong elements of {output} are those of call {place}"
    return ""
