"""Defines the requests that a run sends to its workers, and the reports that they send back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ACCURACY, FAULT, MUTATION
from fuzz.model.outcome import (
    NOT_RUN,
    CompileError,
    Died,
    Hung,
    NotRun,
    Outcome,
    OutOfMemory,
    Raised,
    Rejected,
    describe,
)

HANDLER = "fuzz.oracles.examine:make_handler"
"""The function that makes the handler of these requests, as ``module:function``."""
LOADER = "fuzz.oracles.examine:load_launcher"
"""The function that loads the launcher of a WorkerConfig."""
TRIAL = "fuzz.oracles.examine:make_loading_handler"
"""The function that makes the handler of a process which only loads the file of a target."""
SHARED_PART = 0.25
"""Eager PyTorch is as inaccurate as a kernel where its error is at least this part of the kernel's."""
FAULT_SYMPTOMS: dict[type, str] = {
    Raised: "raised",
    CompileError: "compile-error",
    OutOfMemory: "out-of-memory",
    Died: "died",
    Hung: "hung",
}


@dataclass(frozen=True)
class WorkerConfig:
    """How a worker is set up: a target as a person names it, a planted bug or None, the name of a backend, and whether
    the counters of what kernels do are compiled in."""

    target: str
    planted: str | None
    backend: str
    counters: bool = False


@dataclass(frozen=True)
class Examine:
    """A request to run one case and examine its outcome. The response is a Report.

    Of the oracles that are sampled only those named in `sampled` examine it. After the first oracle that fires the
    others do so only with `everything`.
    """

    case: Case
    sampled: tuple[str, ...] = ()
    everything: bool = False


MOST_DISAGREEING = 8
"""Replicas of a group whose disagreement is examined: each takes as long as a plan, and one plan shows few causes."""


@dataclass(frozen=True)
class ReplicaGroup:
    """A request to run and examine the replicas of a plan together. The response is a tuple of one Report a replica.

    `sampled` names for each replica the sampled oracles that examine it, as in `Examine`; `first` is the index of the
    first replica in the run. The response ends with the replica that ended the process, if any did. After
    MOST_DISAGREEING that disagree, or the first that shows what is `sought`, others that may disagree are not examined,
    and their reports name no oracle. Where the first MOST_DISAGREEING all fail or are refused, or the first one does
    not compile, the response ends there.
    """

    plan: Case
    sampled: tuple[tuple[str, ...], ...]
    first: int = 0
    sought: Finding | None = None

    def request(self, number: int) -> Examine:
        """The request that examines one replica alone."""
        return Examine(self.plan.replica(number), self.sampled[number])

    def until(self, count: int) -> ReplicaGroup:
        """The first `count` replicas."""
        return replace(self, sampled=self.sampled[:count])

    def after(self, count: int) -> ReplicaGroup:
        """The replicas after the first `count`, of a plan whose first one is that after them."""
        if not count:
            return self
        return replace(self, plan=self.plan.after(count), sampled=self.sampled[count:], first=self.first + count)

    def requests(self) -> tuple[Examine, ...]:
        """The requests that examine each replica alone."""
        return tuple(self.request(number) for number in range(len(self.sampled)))


@dataclass(frozen=True)
class Precompile:
    """A request to compile what a plan's first case launches, before it is examined.

    The response is why one of its kernels does not compile, empty where all do or nothing tells; with `check_first`
    that is looked for in all of them before the first is compiled.
    """

    plan: Case
    check_first: bool = False


@dataclass(frozen=True)
class Adjudicate:
    """A request to adjudicate the accuracy finding of a case within a number of seconds. The response is a Verdict."""

    case: Case
    seconds: float


@dataclass(frozen=True)
class Diagnose:
    """A request to diagnose a case with a finding of an oracle. The response is a tuple of sentences, the diagnosis.

    `least` is the smallest case of the same cause; sentences that its outputs contradict are left out.
    """

    case: Case
    least: Case
    oracle: str = ACCURACY.name


@dataclass(frozen=True)
class CompareEager:
    """A request to compare eager PyTorch in the working precision with the reference, in these outputs of a call.

    The response is an EagerDeviation, or None where the reference cannot run in that precision.
    """

    case: Case
    call: int
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class EvaluateReference:
    """A request to evaluate the target's reference alone, as for a case. The response is None."""

    case: Case


@dataclass(frozen=True)
class EagerDeviation:
    """The largest error over bound of eager PyTorch in a dtype, and its worst symptom; "" where nothing disagrees.

    `kernel_ratio` is the kernel's error over the same bounds, which may be those of more members than its finding's.
    """

    dtype: str
    ratio: float
    symptom: str = ""
    kernel_ratio: float = math.inf

    def shares(self, finding: Finding) -> bool:
        """Whether eager PyTorch shows an accuracy finding's symptom, or a worse one, and SHARED_PART of its error.

        So a wrong sign or a NaN is not excused by an inaccurate value.
        """
        symptoms = ACCURACY.symptoms
        if not self.symptom or symptoms.index(self.symptom) > symptoms.index(finding.symptom):
            return False
        return self.ratio >= SHARED_PART * min(finding.ratio, self.kernel_ratio)


@dataclass(frozen=True)
class TryInvalidInput:
    """A request to run a case that the target's declaration rules out. The response is the Harm that it does, if any.

    An input that raises, or that is computed without harm to memory, does none.
    """

    case: Case


@dataclass(frozen=True)
class Harm:
    """An access outside memory, the end of the process, or a hang, in one line. `source_line` is file:line."""

    message: str
    source_line: str = ""


@dataclass(frozen=True)
class Report:
    """The result of one case: its findings in the order in which they are filed, and the oracles that examined it.

    `outcome` describes in words how the launcher ended. It refused a `rejected` case; a `not_run` one could not run
    because other processes held the memory, the time or the device, or its reference ended the device. `worst` is the
    largest error as a multiple of the bound; of replicas that ran together only the worst one has it. That of a plan's
    first replica says whether its replicas ran `one_by_one`, or their references did. It has the names and elements of
    the outputs of its last call, `output_sizes`, and so has that of a case that was examined alone. `features` are
    those of coverage, as libFuzzer's (fuzz/backends/cpu/runtime/counters.py), `constants` are numbers that the kernel
    compares with; both hold only what this worker has not reported before.
    """

    outcome: str
    rejected: bool
    findings: tuple[Finding, ...]
    examined: tuple[str, ...]
    worst: float = 0.0
    features: tuple[int, ...] = ()
    constants: tuple[float, ...] = ()
    not_run: bool = False
    one_by_one: bool = False
    output_sizes: tuple[tuple[str, int], ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the kernel had the case to compute, however that ended."""
        return not (self.rejected or self.not_run)

    @property
    def lack(self) -> str:
        """What the machine lacked; empty where the case could run."""
        return self.outcome.removeprefix(NOT_RUN) if self.not_run else ""

    @property
    def failure(self) -> str:
        """Why there is nothing to compare: the symptom of a fault, or that the launcher refused; empty where it ran."""
        fault = self.finding_of(FAULT.name)
        return "rejected" if self.rejected else fault.symptom if fault else ""

    @property
    def primary_finding(self) -> Finding | None:
        """The finding under which the case is filed, if any."""
        return self.findings[0] if self.findings else None

    @property
    def filed_findings(self) -> tuple[Finding, ...]:
        """The primary finding; where that is a write over an input, which may be meant, the next one as well."""
        is_mutation = self.primary_finding is not None and self.primary_finding.oracle == MUTATION.name
        return self.findings[: 2 if is_mutation else 1]

    def finding_of(self, oracle: str) -> Finding | None:
        """The finding of an oracle, if any."""
        return next((finding for finding in self.findings if finding.oracle == oracle), None)

    def shown(self, like: Finding) -> Finding | None:
        """The finding of the same oracle, if it has the class of symptom in one of the same outputs."""
        shown = self.finding_of(like.oracle)
        return shown if shown and shown.shows_symptom_of(like) else None


def fault_finding(outcome: Outcome) -> Finding | None:
    """The finding that an outcome is by itself; None where the case returned or was rejected."""
    symptom = FAULT_SYMPTOMS.get(type(outcome))
    line = outcome.source_line if isinstance(outcome, Raised) else ""
    return Finding(FAULT.name, ("launcher",), symptom, describe(outcome), source_line=line) if symptom else None


def report_of_outcome(outcome: Outcome) -> Report:
    """The report of a case that did not return."""
    finding = fault_finding(outcome)
    rejected, not_run = isinstance(outcome, Rejected), isinstance(outcome, NotRun)
    examined = () if rejected or not_run else (FAULT.name,)
    return Report(describe(outcome), rejected, (finding,) if finding else (), examined, not_run=not_run)
