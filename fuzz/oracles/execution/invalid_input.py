"""Runs a case that the target's declaration rules out, and observes whether it harms memory."""

from __future__ import annotations

from fuzz.backends.autodiff import forward
from fuzz.backends.execute import run
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import Returned
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.worker.protocol import Harm

OUTSIDE = ("load", "store", "atomic")
"""Kinds of accesses that are outside memory."""


def find_harm(runner: CaseRunner, case: Case) -> Harm | None:
    """The first access outside memory of a case that its launcher does not refuse: forward, then with gradients.

    What raises, whatever it raises, is refused. What is computed from memory of the case's own does no harm.
    """
    for computation in (forward, None) if runner.target.differentiable else (None,):
        try:
            outcome = run(runner.target, runner.launcher, case.calls, runner.backend, computation=computation)
        except UsageError:  # An operation that the backend lacks, or outputs of another kind: nothing was promised.
            return None
        if not isinstance(outcome, Returned):
            return None
        accesses = (access for call in outcome.calls for access in call.accesses if access.kind in OUTSIDE)
        if access := next(accesses, None):
            return Harm(access.where, access.source_line)
    return None
