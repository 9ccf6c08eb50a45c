"""Tells an overflow of a wrong value from a mistake of its own: where nothing overflows the value is there, and large.

Nothing overflows in wider dtypes, or with all numbers halved just so often.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from math import prod

import numpy as np

from fuzz.model import edit
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.recipes import exact
from fuzz.target.spec import Target
from fuzz.triage.bug import NONFINITE
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import MAX_EDITED, edit_values, set_dtype

MOST_HALVINGS = 128
"""How often numbers are halved: then the square of any float32 is in its range."""
MARGIN = 2.0
"""A value may be below the limit by this factor where the one that overflows is estimated by the growth of others."""
Overflow = tuple[Case, Finding]
"""(a case near another one, in which nothing overflows, the wrong values of what is not finite in the other one)."""


def find_overflow(case: Case, finding: Finding, target: Target, triage: Triage) -> Overflow | None:
    """The overflow that a finding is; None where no wrong value is there, or none that the dtypes cannot hold."""
    outputs = nonfinite_outputs(finding)
    if not outputs:
        return None
    wide = _find_in_wider_dtypes(case, outputs, target, triage)
    return wide or _find_in_smaller_numbers(case, outputs, triage)


def _find_in_wider_dtypes(case: Case, outputs: set[str], target: Target, triage: Triage) -> Overflow | None:
    """The overflow of the narrowest dtype, by the same numbers in the default dtypes, which hold more."""
    ranges = _ranges(case)
    narrow = [name for name, largest in ranges.items() if _default_range(name, target) > largest]
    if not narrow:
        return None
    written_out = edit.map_tensors(case, lambda call, name, value: write_out(value, call) if name in narrow else value)
    wide = reduce(lambda edited, name: set_dtype(target, name, str(target.defaults[name]), edited), narrow, written_out)
    limit = min(ranges[name] for name in narrow)
    if (shown := _examine(triage, wide)) is None:
        return None
    return _restricted(wide, shown, {name for name, number in shown.largest if number > limit} & outputs)


def _find_in_smaller_numbers(case: Case, outputs: set[str], triage: Triage) -> Overflow | None:
    """The overflow of values that grow beyond the narrowest dtype when the numbers double twice.

    They are looked at where numbers are half as large as need be: nearer to the limit single elements still overflow.
    """
    if (halvings := _count_halvings(case, outputs, triage)) is None:
        return None
    fitting = halve(halvings + 1, case)
    shown, smaller = _examine(triage, fitting), _examine(triage, halve(halvings + 2, case))
    if shown is None or smaller is None:
        return None
    limit, before = min(_ranges(case).values()), dict(smaller.largest)
    grown = {name: number * (number / before[name]) ** 2 for name, number in shown.largest if before.get(name)}
    return _restricted(fitting, shown, {name for name in grown if MARGIN * grown[name] > limit} & outputs)


def _restricted(case: Case, shown: Finding, outputs: set[str]) -> Overflow | None:
    """The case with the part of its finding that says of some outputs that their finite values are wrong."""
    finite = outputs - nonfinite_outputs(shown)
    values = shown.restricted_to({subject for subject in shown.subjects if subject[-1] in finite})
    return (case, values) if values else None


def _count_halvings(case: Case, outputs: set[str], triage: Triage) -> int | None:
    """How often all numbers are halved at the least until one of the outputs is finite; None where it never is."""

    def overflows(halvings: int) -> bool:
        shown = _examine(triage, halve(halvings, case))
        return shown is not None and outputs <= nonfinite_outputs(shown)

    if halve(1, case).key == case.key:
        return None
    high = 1
    while overflows(high):
        high *= 2
        if high > MOST_HALVINGS:
            return None
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if overflows(middle) else (low, middle)
    return high


def halve(times: int, case: Case) -> Case:
    """The case with all numbers of its last call halved so often."""
    halved = partial(_scaled, 0.5**times)
    names = (name for name, value in case.last.tensors.items() if value.is_float)
    return reduce(lambda edited, name: edit_values(name, halved, edited), names, case)


def _scaled(factor: float, numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers * factor)


def _examine(triage: Triage, case: Case) -> Finding | None:
    return triage.examine(case, ACCURACY.name).finding_of(ACCURACY.name)


def write_out(value: Argument, call: Call) -> Argument:
    """The tensor with its numbers as exact values, which another dtype keeps; unchanged where it is large."""
    if prod(value.stored_shape(call.dims)) > MAX_EDITED:
        return value
    return replace(value, values=exact(value.bits(call.dims), named_dtype(value.dtype)))


def nonfinite_outputs(finding: Finding) -> set[str]:
    """The outputs of a finding of accuracy that are not finite where they should be, or the reverse."""
    return {subject[-1] for subject in finding.subjects if subject[:-1] == (ACCURACY.name, NONFINITE)}


def _ranges(case: Case) -> dict[str, float]:
    """The largest number that the dtype of each tensor of floating numbers holds."""
    kinds = {name: named_dtype(value.dtype) for name, value in case.last.tensors.items() if value.is_float}
    return {name: float(kind.largest) for name, kind in kinds.items()}


def _default_range(name: str, target: Target) -> float:
    default = target.defaults.get(name)
    kind = named_dtype(str(default)) if default is not None else None
    return float(kind.largest) if kind and kind.is_float else 0.0
