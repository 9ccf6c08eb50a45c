"""Examines cases of a solution by two processes: one runs the solution, the other one compares with the problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.backends import backend as named_backend
from fuzz.judge.device_names import compares_devices
from fuzz.judge.problem.description import (
    NotComparable,
    ProblemDescription,
    Setting,
    Unsupported,
    UnsupportedHere,
    WordValues,
)
from fuzz.judge.processes.requests import (
    PROBLEM_HANDLER,
    SOLUTION_HANDLER,
    AdjudicateOutputs,
    Compare,
    DiagnoseOutputs,
    GetSetting,
    Load,
    MeasureMemory,
    OutputComparison,
    Outputs,
    ProblemConfig,
    Refusal,
    Restore,
    RunProblem,
    RunSolution,
    SolutionConfig,
    SolutionReport,
    same_words,
)
from fuzz.judge.result.judgement import SOLUTION
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Verdict, filing_order
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.outcome import NotRun, OutOfMemory, Raised, Rejected, Returned
from fuzz.model.recipes import Values, exact
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import Adjudicate, CompareEager, Diagnose, ReplicaGroup, Report, report_of_outcome
from fuzz.worker.worker import Worker, WorkerCrash
from fuzz.worker.worker_process import WorkerProcess

PROBLEM_SECONDS = 120.0
"""Seconds that a request to the problem's process may take."""
LOAD_SECONDS = 240.0
"""Seconds in which a solution's file is executed: inline CUDA takes a minute to compile."""
COMPARED = 4
"""The last comparisons that are kept: a case that disagrees is confirmed by running it again up to ten times."""
IN_TF32 = "products of float32 may be in tf32, as those of tl.dot are by default: the bound allows for that"
MEMORY_FACTOR = 4
"""A solution may need so many times the memory that the problem's own code takes for the same case."""
LISTED = 1 << 16
"""Tensors up to so many elements that only the problem makes are listed in a case, larger ones are kept as arrays."""


@dataclass
class ProblemProcess:
    """The process that holds the problem; settings and values that it gave are kept.

    `description` is what it said of the problem, which is sent to a new process where one has ended.
    """

    worker: Worker
    settings: dict[tuple[tuple[str, int], ...], Setting | Refusal] = field(default_factory=dict)
    description: ProblemDescription | None = None
    has_ended: bool = False

    @classmethod
    def start(cls, config: ProblemConfig, memory: int, deadline: Deadline) -> ProblemProcess:
        return cls(Worker(PROBLEM_HANDLER, config, memory, PROBLEM_SECONDS, deadline=deadline))

    def stop(self) -> None:
        """Ends the process; the next request starts another one."""
        self.worker.stop()
        self.has_ended = True

    def call(self, request: Any) -> Any:
        """The response; a Refusal where the process ended. Raises NotComparable or Unsupported."""
        if self.has_ended and self.description is not None:
            self.has_ended = isinstance(self.worker.call(Restore(self.description)), WorkerCrash)
        answer = self.worker.call(request)
        if isinstance(answer, WorkerCrash):
            self.has_ended = True
            kind = type(answer.outcome).__name__
            return Refusal(f"the problem's own code ends its process: {answer.outcome}", kind)
        raise_refusal(answer)
        if isinstance(answer, ProblemDescription):
            self.description = answer
        return answer

    def measure_memory(self, case: Case) -> int | Refusal:
        """The bytes that the problem's own code takes for a case, in a process of its own that has run nothing."""
        fresh = replace(self, worker=self.worker.clone(), has_ended=True)
        try:
            answer: int | Refusal = fresh.call(MeasureMemory(case))
            return answer
        finally:
            fresh.worker.stop()

    def setting(self, dims: Mapping[str, int]) -> Setting | Refusal:
        """What a solution is given at these dims."""
        key = tuple(sorted(dims.items()))
        if key not in self.settings:
            self.settings[key] = self.call(GetSetting(dims))
        return self.settings[key]


@dataclass
class RunLog:
    """What examinations of a solution have shown so far. `conduct` holds reasons why it is no honest solution.

    `returned` and `rejected` count requests by their outcome; `rejection` is what the last one that it refused raised.
    `configs` is the most configurations that an autotuner chose from. `shortage` says which case was left out first, as
    the problem's own code needs much memory for it too. `is_loadable` says that the solution's file was executed.
    """

    calls: int = 0
    launches: int = 0
    returned: int = 0
    rejected: int = 0
    rejection: str = ""
    kernels_defined: int = 0
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    conduct: dict[str, None] = field(default_factory=dict)
    trouble: str = ""
    renamed: str = ""
    in_tf32: bool = False
    configs: int = 0
    worst: float = 0.0
    shortage: str = ""
    is_loadable: bool = False

    def add(self, case: Case, report: SolutionReport) -> None:
        self.calls += max(len(report.outputs), 1)
        self.launches += report.launches
        self.kernels_defined = max(self.kernels_defined, report.kernels_defined)
        self.conduct |= dict.fromkeys(report.conduct)
        self.trouble = self.trouble or report.trouble
        self.renamed = self.renamed or report.renamed
        self.in_tf32 |= report.in_tf32
        self.configs = max(self.configs, report.configs)
        if isinstance(report.outcome, Rejected):
            self.rejected, self.rejection = self.rejected + 1, report.outcome.message
        if isinstance(report.outcome, Returned):
            self.returned += 1
            for call in case.calls:
                for name, size in call.dims.items():
                    low, high = self.dims.get(name, (size, size))
                    self.dims[name] = min(low, size), max(high, size)

    @property
    def notes(self) -> list[str]:
        """What is to be said of a solution beside what is wrong."""
        return [*filter(None, [self.renamed, IN_TF32 if self.in_tf32 else "", self.shortage])]


@dataclass
class IsolatedWorker:
    """Answers requests on cases as a worker does that holds target and kernel both; `last` is the last comparison.

    `loaded` is the process that has executed the solution's file.
    """

    problem: ProblemProcess
    solution: Worker
    description: ProblemDescription
    log: RunLog = field(default_factory=RunLog)
    last: OutputComparison = OutputComparison(None)
    compared: list[tuple[Case, Outputs, OutputComparison]] = field(default_factory=list)
    loaded: WorkerProcess | None = None

    @property
    def timeout(self) -> float:
        return self.solution.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.solution.timeout = seconds

    @property
    def deadline(self) -> Deadline:
        return self.solution.deadline

    @property
    def asks_for_gpu(self) -> bool:
        """Whether the solution decides by the names of devices, on a backend whose tensors lie on the processor."""
        config: SolutionConfig = self.solution.config
        return not named_backend(config.backend).is_accelerator and compares_devices(config.path)

    def start(self) -> None:
        self.solution.start()

    def stop(self) -> None:
        self.solution.stop()

    def restart(self) -> None:
        """Takes a new process for the solution, which has run nothing."""
        self.solution.stop()
        self.solution.start()

    def load(self) -> None:
        """Executes the solution's file, for which it has more time than for a call. Raises Unsupported.

        A process that ends meanwhile does so again in the first case, which reports it.
        """
        timeout = self.timeout
        self.timeout = LOAD_SECONDS
        try:
            with self.deadline.pause(LOAD_SECONDS):
                answer = self.solution.call(Load())
        finally:
            self.timeout = timeout
        raise_refusal(answer, by_solution=True)
        self.log.is_loadable, self.loaded = not isinstance(answer, WorkerCrash), self.solution.process

    def ask_solution(self, request: RunSolution) -> Any:
        """The response of a process that has executed the solution's file before, as that may take longer than a call.

        What did not load before does so as part of the request, which reports it.
        """
        if self.log.is_loadable and self.solution.process is not self.loaded:
            self.load()
        return self.solution.call(request)

    def take_dims(self, dims: Mapping[str, int]) -> None:
        """Takes other dims for those of the first cases, and so for the most that a case may take."""
        self.take(replace(self.description, dims=dict(dims)))
        self.problem.settings.clear()

    def take(self, description: ProblemDescription) -> None:
        """Takes another description of the problem."""
        self.description = self.problem.description = description
        self.problem.call(Restore(description))

    def clone(self) -> IsolatedWorker:
        return replace(self, solution=self.solution.clone())

    def call(self, request: Any) -> Any:
        """The response to a request of triage. Raises NotComparable or Unsupported."""
        if isinstance(request, Diagnose):
            return self.diagnose(request)
        if isinstance(request, ReplicaGroup):
            return tuple(self.call(one) for one in request.requests())
        answer = self.run(request.case)
        if isinstance(request, Adjudicate):
            if not isinstance(answer, SolutionReport) or not answer.outputs:
                return Verdict("unadjudicated", "it did not return again")
            verdict = self.problem.call(AdjudicateOutputs(request.case, answer.outputs[-1], request.seconds))
            return Verdict("unadjudicated", verdict.text) if isinstance(verdict, Refusal) else verdict
        report = self.report(request.case, answer) if isinstance(answer, SolutionReport) else answer
        return self.last.eager if isinstance(request, CompareEager) else report

    def diagnose(self, request: Diagnose) -> tuple[str, ...]:
        """What is wrong with wrong values, in words; nothing of other findings."""
        ran = [self.run(case) for case in (request.case, request.least)] if request.oracle == ACCURACY.name else []
        outputs = [one.outputs[-1] for one in ran if isinstance(one, SolutionReport) and one.outputs]
        if len(outputs) < 2:
            return ()
        found = self.problem.call(DiagnoseOutputs(request.case, outputs[0], request.least, outputs[1]))
        return found if isinstance(found, tuple) else ()

    def run(
        self,
        case: Case,
        *,
        launch: bool = True,
        steps: Sequence[tuple[int, bool]] = (),
        races: bool = False,
        copies: bool = False,
        seconds: float = math.inf,
        fill: float | None = None,
        benchmarks: bool = False,
        spoiled: Sequence[int] = (),
    ) -> SolutionReport | Report:
        """What the solution gives for a case; the report on the case where there is no more to be said of it.

        The options are those of RunSolution.
        """
        settings = [self.problem.setting(call.dims) for call in case.calls]
        for setting in settings:
            if isinstance(setting, Refusal):
                return report_of_outcome(Rejected(setting.text))
        given = tuple(setting for setting in settings if isinstance(setting, Setting))
        words = Case(case.target, tuple(map(with_words, case.calls)))
        request = RunSolution(
            self.description, words, given, launch, tuple(steps), races, copies, seconds, fill, benchmarks,
            tuple(spoiled),
        )  # fmt: skip
        answer = self.ask_solution(request)
        raise_refusal(answer, by_solution=True)
        assert isinstance(answer, SolutionReport | WorkerCrash)
        if isinstance(answer.outcome, OutOfMemory) and not steps and (reason := self.find_shortage(case)):
            self.log.shortage = self.log.shortage or reason
            return report_of_outcome(Rejected(reason))
        if isinstance(answer, WorkerCrash):
            return report_of_outcome(answer.outcome)
        if isinstance(answer.outcome, Raised | Rejected) and (reason := self.find_refusal(case)):
            self.log.add(case, replace(answer, outcome=NotRun(reason)))
            return report_of_outcome(Rejected(reason))
        self.log.add(case, answer)
        if answer.in_tf32 and (self.problem.description or self.description).dot != "tf32":
            self.take(replace(self.description, dot="tf32"))
            self.compared.clear()
        return answer if isinstance(answer.outcome, Returned) else report_of_outcome(answer.outcome)

    def find_refusal(self, case: Case) -> str:
        """Why the problem's own code refuses a call of a case, which then shows nothing of the solution; or nothing."""
        answers = (self.problem.call(RunProblem(Case(case.target, (call,)))) for call in case.calls)
        return next((answer.text for answer in answers if isinstance(answer, Refusal)), "")

    def find_shortage(self, case: Case) -> str:
        """Why a case needs too much memory here whoever computes it; empty where the solution is to blame."""
        for call in case.calls:
            needed = self.problem.measure_memory(Case(case.target, (call,)))
            if isinstance(needed, Refusal) or MEMORY_FACTOR * needed >= self.solution.memory:
                taken = needed.text if isinstance(needed, Refusal) else f"it takes {needed >> 20} MiB"
                where = " ".join(f"{name}={size}" for name, size in call.dims.items())
                return f"left out where the problem's own code needs much memory too, as at {where}: {taken}"
        return ""

    def report(self, case: Case, ran: SolutionReport, *, by_own_rule: bool = False) -> Report:
        """The report on a case that the solution has returned from."""
        compared = self.compare(case, ran.outputs[-1], by_own_rule=by_own_rule)
        if isinstance(compared, Refusal):
            # Where the machine lacks something for now, it is worth trying again.
            lacking = compared.kind == NotRun.__name__
            return report_of_outcome(NotRun(compared.text) if lacking else Rejected(compared.text))
        findings = [*ran.findings, *([compared.finding] if compared.finding else [])]
        findings.sort(key=filing_order)
        return Report("returned", False, tuple(findings), (), compared.worst)

    def compare(self, case: Case, outputs: Outputs, *, by_own_rule: bool = False) -> OutputComparison | Refusal:
        """What the reference says of outputs; the same again of what it was asked about just before."""
        self.last = OutputComparison(None)
        answer = self.find_comparison(case, outputs, by_own_rule)
        if answer is None:
            answer = self.problem.call(Compare(case, outputs, by_own_rule))
        if isinstance(answer, OutputComparison):
            self.last = answer
            self.compared.append((case, outputs, answer))
            del self.compared[:-COMPARED]
            self.log.worst = max(self.log.worst, answer.worst if answer.finding is None else 0.0)
        assert isinstance(answer, OutputComparison | Refusal)
        return answer

    def find_comparison(self, case: Case, outputs: Outputs, by_own_rule: bool) -> OutputComparison | None:
        """What was said of the same outputs of a case, if that is among the last comparisons."""
        for known, given, answer in reversed(self.compared):
            if known == case and same_words(given, outputs) and (answer.own_rule is not None or not by_own_rule):
                return answer
        return None


def start_solution(config: SolutionConfig, memory: int, timeout: float, deadline: Deadline) -> Worker:
    """The worker of a solution's process."""
    return Worker(SOLUTION_HANDLER, config, memory, timeout, deadline=deadline)


def with_words(call: Call) -> Call:
    """The call with the words of every tensor in the place of what makes them, and so without a seed."""
    arguments, cotangents = (
        {
            name: Argument(value.shape, value.dtype, WordValues(value.bits(call.dims), value.dtype), value.layout)
            for name, value in part.items()
        }
        for part in (call.arguments, call.cotangents)
    )
    return Call(call.dims, arguments, call.options, cotangents, launch=call.launch)


def as_values(words: Any, dtype: str) -> Values:
    """Words as the values of an argument."""
    return exact(words, named_dtype(dtype)) if words.size <= LISTED else WordValues(words, dtype)


def raise_refusal(answer: Any, *, by_solution: bool = False) -> None:
    """Raises the error that a refusal names, if any."""
    kinds = {error.__name__: error for error in (NotComparable, Unsupported, UnsupportedHere)}
    if isinstance(answer, Refusal) and answer.kind in kinds:
        error = kinds[answer.kind](answer.text)
        if by_solution and not isinstance(error, UnsupportedHere):
            error.cause = SOLUTION
        raise error
