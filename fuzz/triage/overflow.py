"""Tells an overflow of a wrong value from a mistake of its own: with wider dtypes the value is there, and too large."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import prod

from fuzz.model import edit
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.recipes import exact
from fuzz.target.spec import Target
from fuzz.triage.bug import NONFINITE
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import MAX_EDITED, set_dtype


def find_overflow(case: Case, finding: Finding, target: Target, triage: Triage) -> tuple[Case, Finding] | None:
    """The case in wider dtypes with the same numbers, and the wrong values of what is not finite in the narrow ones.

    None where the dtypes are as wide as any, or where no wrong value is beyond the range of the narrow dtypes.
    """
    outputs = nonfinite_outputs(finding)
    narrow = [name for name in case.last.tensors if _default_range(name, target) > _range(case, name)]
    if not (outputs and narrow):
        return None
    written_out = edit.map_tensors(case, lambda call, name, value: write_out(value, call) if name in narrow else value)
    wide = reduce(lambda edited, name: set_dtype(target, name, str(target.defaults[name]), edited), narrow, written_out)
    shown = triage.examine(wide, ACCURACY.name).finding_of(ACCURACY.name)
    if shown is None:
        return None
    limit = min(_range(case, name) for name in narrow)
    too_large = {name for name, number in shown.largest if number > limit} & outputs - nonfinite_outputs(shown)
    values = shown.restricted_to({subject for subject in shown.subjects if subject[-1] in too_large})
    return (wide, values) if values else None


def write_out(value: Argument, call: Call) -> Argument:
    """The tensor with its numbers as exact values, which another dtype keeps; unchanged where it is large."""
    if prod(value.stored_shape(call.dims)) > MAX_EDITED:
        return value
    return replace(value, values=exact(value.bits(call.dims), named_dtype(value.dtype)))


def nonfinite_outputs(finding: Finding) -> set[str]:
    """The outputs of a finding of accuracy that are not finite where they should be, or the reverse."""
    return {subject[-1] for subject in finding.subjects if subject[:-1] == (ACCURACY.name, NONFINITE)}


def _range(case: Case, name: str) -> float:
    """The largest number that a tensor's dtype holds."""
    kind = named_dtype(case.last.tensors[name].dtype)
    return float(kind.largest) if kind.is_float else 0.0


def _default_range(name: str, target: Target) -> float:
    default = target.defaults.get(name)
    kind = named_dtype(str(default)) if default is not None else None
    return float(kind.largest) if kind and kind.is_float else 0.0
