"""How a stand-alone script repeats the check of an oracle, and the texts that several oracles share.

A text defines `check()`, which yields what is wrong. It may use what the script defines
(report/reproducer/program.py.jinja): `run_call`, `every_tensor`, `refilled`, `equal_values`, `equal_bits`, DEVICE, and
EXPECTED and `wrong_elements` with `values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fuzz.errors import UsageError
from fuzz.model.case import Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.target.spec import Target

MAX_ELEMENTS = 1 << 22
"""Elements of a call that a script writes out."""
Graph = tuple[Callable[..., Any], Callable[..., Any] | tuple[str, ...] | None, tuple[str, ...]]


@dataclass(frozen=True)
class SavedFinding:
    """An entry with its finding and target: what a script is made from."""

    entry: Entry
    finding: Finding
    target: Target


@dataclass(frozen=True)
class ScriptCheck:
    """The text of a check, and what it needs in the script.

    `constants` are written as their repr, `functions` as source: functions of the target's file and what those use.
    `graphs` are functions of autograd_graphs.py, each with its argument or None and the inputs that need a gradient;
    the script has them as GRAPHS, (computation, inputs) each. With `values` the script holds the reference's values and
    bounds for the call that shows the finding, in the case `values_of` where that is another one, and under each name
    of `values_by` those of that target's reference. `other_call` is made by the script as well, as its last call. With
    `cpu_only` the script runs on the CPU where there is a GPU too.
    """

    text: str
    constants: Mapping[str, object] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    graphs: tuple[Graph, ...] = ()
    values: bool = False
    values_of: Case | None = None
    values_by: Mapping[str, Target] = field(default_factory=dict)
    other_call: Call | None = None
    cpu_only: bool = False


def check_size(call: Call) -> None:
    """UsageError where a call's inputs are too many to be written out in a script."""
    elements = sum(math.prod(value.stored_shape(call.dims)) for value in call.tensors.values())
    if elements > MAX_ELEMENTS:
        raise UsageError(f"no script can be made: its inputs have {elements} elements, more than {MAX_ELEMENTS}")


COMPARE_WITH_REFERENCE = '''
def check():
    """Compares every output with the reference."""
    outputs = run_call()
    for name in EXPECTED.keys() & outputs.keys():
        for index, value, want, bound in wrong_elements(name, outputs[name]):
            within = f" within {bound:.3g}" if bound and abs(want) < float("inf") else ""
            yield f"{name}.flatten()[{index}] is {value!r}, should be {want!r}{within}"
'''
FAILURE = '''
def failure(error):
    """What is wrong where a call raises; empty where it refuses its input."""
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    module = frame.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    refused = isinstance(error, (ValueError, TypeError, NotImplementedError, AssertionError))
    compiled = type(error).__name__ in ("CompilationError", "CompileTimeAssertionFailure")
    return "" if refused and module not in ("fuzz", "triton") and not compiled else f"{type(error).__name__}: {error}"


'''
SAME_BITS = '''
def check():
    """Compares the bits of both runs."""
    first, second = run_twice()
    for name in OUTPUTS:
        if not equal_bits(first[name][ROWS], second[name]):
            yield f"{name}: {first[name][ROWS].tolist()} and then {second[name].tolist()}"
'''
WITHIN_BOUNDS = '''
def check():
    """Compares both runs: they may differ by twice the bound."""
    first, second = run_twice()
    for name in OUTPUTS:
        one, other = first[name][ROWS], second[name]
        bounds = torch.tensor([float(bound) for bound in EXPECTED[name][1]]).double()
        bounds = bounds.reshape(first[name].shape)[ROWS]
        kind = torch.finfo(one.dtype if one.is_floating_point() else torch.float64)
        most = kind.max * (1 + kind.eps / 4)  # What overflows to infinity is at least so large.
        apart = (one.double().clamp(-most, most) - other.double().clamp(-most, most)).abs() > 2 * bounds
        apart |= one.isnan() != other.isnan()
        if bool((apart & (one != other) & bounds.isfinite()).any()):
            yield f"{name}: {one.tolist()} and then {other.tolist()}"
'''


def compare_two_runs(
    finding: Finding, run_twice: str, rows: slice | None = None, other_call: Call | None = None, **constants: object
) -> ScriptCheck:
    """The check whose text defines `run_twice`, which gives the outputs of both runs; `rows` of the first are compared.

    They must have the same bits, or lie within the bounds where the finding says that they drift.
    """
    drift = finding.symptom == "drift"
    text = run_twice.rstrip("\n") + "\n\n" + (WITHIN_BOUNDS if drift else SAME_BITS)
    constants |= {"OUTPUTS": list(finding.outputs), "ROWS": rows or Ellipsis}
    return ScriptCheck(text, constants, values=drift, other_call=other_call)
