"""Values that are right, but in another place: of another output, transposed, or of an earlier call."""

from __future__ import annotations

from fuzz.oracles.comparison.elements import half_ulp
from fuzz.oracles.diagnosis.context import DiagnosisContext


def swapped(seen: DiagnosisContext, output: str) -> str:
    """An output that equals what is due for another one."""
    for other, due in seen.want.items():
        if other != output and bool(due.any()) and seen.fits(output, due, seen.bound[other]):
            return f"{output} equals the reference's {other}"
    return ""


def transposed(seen: DiagnosisContext, output: str) -> str:
    """A matrix of the right elements in column-major order."""
    due = seen.want[output]
    if due.dim() < 2:
        return ""
    turned = due.transpose(-1, -2).reshape(due.shape)
    bound = seen.bound[output].transpose(-1, -2).reshape(due.shape)
    return f"{output} is transposed" if seen.fits(output, turned, bound) else ""


def stale(seen: DiagnosisContext, output: str) -> str:
    """What was due from an earlier call, in all wrong elements."""
    for place, outputs in enumerate(seen.earlier, 1):
        old = outputs.get(output)
        if old is None or old.shape != seen.got[output].shape:
            continue
        wrong = seen.wrong[output]
        difference = (seen.got[output] - old).abs()[wrong]
        allowed = seen.bound[output] + 8 * half_ulp(old.abs(), seen.kind(output))
        if bool((difference <= allowed[wrong]).all()):
            return f"the wrong elements of {output} are those of call {place}"
    return ""
