"""Question: what a worker is asked about a case or a wave, and the Report it answers. Data between processes."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.outcome import CompileError, Died, Hung, Outcome, OutOfMemory, Raised, Rejected, describe

ENTRY = "fuzz.oracles.examine:service"
"""What a worker runs to answer questions."""
FAULTS: dict[type, str] = {
    Raised: "raised",
    CompileError: "compile-error",
    OutOfMemory: "out-of-memory",
    Died: "died",
    Hung: "hung",
}


@dataclass(frozen=True)
class Setting:
    """What a worker is for: a target as a person names it, a planted bug or none, a backend's name, and whether what
    kernels do is counted."""

    target: str
    planted: str | None
    backend: str
    counters: bool = False


@dataclass(frozen=True)
class Question:
    """A case, the sampled oracles to ask, and whether to ask those that come after the first that fires."""

    case: Case
    sampled: tuple[str, ...] = ()
    everything: bool = False


@dataclass(frozen=True)
class Wave:
    """A plan whose replicas run together: for each the sampled oracles to ask. `first` is the first one's index.

    The answer is one report a replica, in order, and ends with the one that ended the process, if any did.
    """

    plan: Case
    sampled: tuple[tuple[str, ...], ...]
    first: int = 0

    def question(self, number: int) -> Question:
        """What is asked about one replica."""
        return Question(self.plan.replica(number), self.sampled[number])

    def questions(self) -> tuple[Question, ...]:
        return tuple(self.question(number) for number in range(len(self.sampled)))


@dataclass(frozen=True)
class Appeal:
    """A case that is filed under accuracy, to be adjudicated within so many seconds. The answer is a Verdict."""

    case: Case
    seconds: float


@dataclass(frozen=True)
class Inquiry:
    """A case whose outputs are to be looked at as a whole. The answer is a tuple of sentences, the diagnosis.

    `least` is the least case of the same cause, which must not contradict them.
    """

    case: Case
    least: Case


@dataclass(frozen=True)
class Report:
    """What came of one case: findings in the order in which they are filed, and which oracles examined it.

    `worst` is its error over the bound; of replicas that ran together only the nearest to it tells it.

    What the worker had not told before: `features` are numbers of what the kernel did (cpu/runtime/features.py),
    `constants` are numbers that it compares with.
    """

    outcome: str
    rejected: bool
    findings: tuple[Finding, ...]
    examined: tuple[str, ...]
    worst: float = 0.0
    features: tuple[int, ...] = ()
    constants: tuple[float, ...] = ()

    @property
    def filed(self) -> Finding | None:
        """The finding under which the case is filed, if any."""
        return self.findings[0] if self.findings else None

    @property
    def filings(self) -> tuple[Finding, ...]:
        """The filed finding; and where it is a write over an input, which need not harm, the next one as well."""
        written = self.filed is not None and self.filed.oracle == "mutation"
        return self.findings[: 1 + written]


def fault(outcome: Outcome) -> Finding | None:
    """The finding that an outcome is by itself, if any."""
    symptom = FAULTS.get(type(outcome))
    return Finding("fault", ("launcher",), symptom, describe(outcome)) if symptom else None


def report_of(outcome: Outcome) -> Report:
    """The report of a case that did not return."""
    found = fault(outcome)
    rejected = isinstance(outcome, Rejected)
    return Report(describe(outcome), rejected, (found,) if found else (), () if rejected else ("fault",))
