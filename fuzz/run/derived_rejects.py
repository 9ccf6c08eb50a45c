"""Tries inputs that a target's declaration rules out, and keeps those that are not refused and harm memory.

They are derived from plans of the run that returned without a finding, so that nothing more is drawn, and run in a
worker of their own, so that what they do there harms no case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz.backends import BACKENDS
from fuzz.model.case import Case
from fuzz.model.outcome import Died, Hung, describe
from fuzz.search.invalid_inputs import InvalidInput, derive_invalid_inputs
from fuzz.target.spec import Target
from fuzz.worker.deadline import OutOfTime
from fuzz.worker.protocol import Harm, Report, TryInvalidInput
from fuzz.worker.worker import Worker, WorkerCrash

PERIOD = 16
"""Of so many plans one is tried with an invalid input."""
TRIES = 2
"""Plans that each invalid input is tried with, as what it harms may depend on dims."""
MOST_ELEMENTS = 1 << 14
"""Elements of the largest plan that is taken."""
PATIENCE = 1 / 3
"""The share of a target's timeout after which an invalid input hangs: findings wait meanwhile."""
SEVERITY = "low"
"""The severity of what no target promises."""


@dataclass(frozen=True)
class AcceptedInput:
    """An invalid input that a launcher did not refuse, and the harm that it did."""

    input: InvalidInput
    harm: Harm

    @property
    def message(self) -> str:
        """What is wrong with the input, and what it did, in one line."""
        return f"{self.input.what}: {self.harm.message}"


@dataclass(frozen=True)
class InvalidInputs:
    """How many invalid inputs a run has tried, and those that were accepted."""

    tried: int = 0
    accepted: tuple[AcceptedInput, ...] = ()


@dataclass
class DerivedRejects:
    """Tries one invalid input with each plan that it is given; at most one of an argument and kind is accepted.

    After one that hangs no other is tried. Every `period`-th plan is taken.
    """

    target: Target
    worker: Worker
    period: int = PERIOD
    _accepted: dict[tuple[str, str], AcceptedInput] = field(default_factory=dict)
    _tried: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _has_hung: bool = False
    _plans: int = 0

    def __enter__(self) -> DerivedRejects:
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop()

    @property
    def results(self) -> InvalidInputs:
        """What was tried, and what was accepted, so far."""
        return InvalidInputs(self._tried.total(), tuple(self._accepted.values()))

    def takes(self, plan: Case, reports: Sequence[Report]) -> bool:
        """Whether an invalid input is to be tried with this plan, whose replicas have these reports."""
        self._plans += 1
        if self._plans % self.period != self.period // 2 or not BACKENDS[self.worker.config.backend].checks_accesses:
            return False
        is_good = all(report.accepted and not report.findings for report in reports)
        return is_good and plan.calls[0].elements() <= MOST_ELEMENTS

    def try_next(self, plan: Case) -> None:
        """Tries, of the invalid inputs that a plan's first call gives, the one that was tried least."""
        derived = derive_invalid_inputs(plan.calls[0], self.target)
        waiting = [each for each in derived if self._is_waiting(each)]
        if not waiting or self._has_hung:
            return
        invalid = min(waiting, key=lambda each: self._tried[identify(each)])
        self._tried[identify(invalid)] += 1
        try:
            harm = self._find_harm(Case(plan.target, (invalid.call,)))
        except OutOfTime:
            return
        if harm is not None:
            self._accepted[invalid.argument, invalid.kind] = AcceptedInput(invalid, harm)

    def _is_waiting(self, invalid: InvalidInput) -> bool:
        return (invalid.argument, invalid.kind) not in self._accepted and self._tried[identify(invalid)] < TRIES

    def _find_harm(self, case: Case) -> Harm | None:
        """The harm that a case does; what ends the process counts where it does so again in a new one, or hangs."""
        for _ in range(2):
            response = self.worker.call(TryInvalidInput(case))
            if not isinstance(response, WorkerCrash):
                return response if isinstance(response, Harm) else None
            if not isinstance(response.outcome, Died | Hung):
                return None
            if isinstance(response.outcome, Hung):
                self._has_hung = True
                break
        return Harm(describe(response.outcome))


def identify(invalid: InvalidInput) -> tuple[str, str, str]:
    """What two plans' invalid inputs have in common."""
    return invalid.argument, invalid.kind, invalid.variant
