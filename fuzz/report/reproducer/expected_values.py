"""Evaluates the reference for the call that shows a finding, as the text that a stand-alone script compares with."""

from __future__ import annotations

from fuzz.backends import BACKENDS, DEFAULT
from fuzz.backends.execute import FatalError, run
from fuzz.backends.memory import DTYPE_NAMES
from fuzz.errors import UsageError
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Rejected, Returned, describe
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import SavedFinding

LAST = len(STAGES) - 1


def expected_values(saved: SavedFinding) -> dict[str, object]:
    """[values, bounds] of the elements of each output, in row-major order; empty without a reference."""
    target, call = saved.target, saved.finding.call
    if target.reference is None:
        return {}
    backend = BACKENDS.get(saved.entry.provenance.backend, DEFAULT)
    exam = Examination(target, target.launcher, saved.entry.case, backend, Rejected("not run"))
    found: dict[str, object] = {}
    dtypes = output_dtypes(exam, call)
    for name, expected in evaluate_reference(exam, call, LAST).items():
        if name in dtypes:
            bound = error_bounds(expected, named_dtype(dtypes[name]), exam.precision, target.contract)[2]
            found[name] = [[repr(v) for v in part.reshape(-1).tolist()] for part in (expected.value.double(), bound)]
    return found


def output_dtypes(exam: Examination, call: int) -> dict[str, str]:
    """The dtypes that the launcher gives its outputs, by name. UsageError where it gives none."""
    try:
        with exam.backend.session(None):
            outcome = run(exam.target, exam.launcher, exam.case.calls[: call + 1], exam.backend)
    except FatalError as fatal:
        outcome = fatal.outcome
    if not isinstance(outcome, Returned):
        raise UsageError(f"no script can be made: the case is {describe(outcome)}")
    return {name: DTYPE_NAMES[value.dtype] for name, value in outcome.calls[call].outputs.items()}
