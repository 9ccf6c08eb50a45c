"""Defines the requests to the two processes of a judgement: that of the problem, and that of the solution.

The process of the solution gets shapes, dtypes, layouts and words of its tensors, and what its constructor takes: never
the problem's file, a seed, or an output of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuzz.judge.problem.description import ProblemDescription, Setting
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.outcome import Outcome
from fuzz.worker.protocol import EagerDeviation

PROBLEM_HANDLER = "fuzz.judge.processes.problem_worker:make_handler"
SOLUTION_HANDLER = "fuzz.judge.processes.solution_worker:make_handler"
SERVER_MODULE = "fuzz.judge.server_preload"
"""What the server of workers imports before it forks these processes."""

FLOPS = 1 << 28
"""Floating-point operations of the first case, as long as nothing else is asked for."""


@dataclass(frozen=True)
class ProblemConfig:
    """How the problem's process is set up. First cases have at most so many `elements`, and take so many `seconds` and
    `flops` in float32. `spec` is a file that gives the problem's inputs, dims and dtypes, if there is one."""

    format: str
    path: Path
    backend: str
    elements: int
    seconds: float
    flops: int = FLOPS
    spec: Path | None = None


@dataclass(frozen=True)
class SolutionConfig:
    """How the solution's process is set up. Files in `secret` are what it may not read; `task` is the problem's folder
    where solutions import types from it; what the solution compiles or holds as text lies in `build_folder`."""

    format: str
    path: Path
    backend: str
    build_folder: Path
    task: Path = Path()
    secret: tuple[Path, ...] = ()

    @property
    def extensions(self) -> Path:
        """Where what it compiles is built."""
        return self.build_folder / "extensions"

    @property
    def sources(self) -> Path:
        """Where the sources are written that its file holds."""
        return self.build_folder / "sources"

    @property
    def task_folder(self) -> Path | None:
        """The folder in which the problem is, where there is one."""
        folder = self.task if self.task.is_dir() else self.task.parent
        return folder if folder != Path() and folder.is_dir() else None


@dataclass(frozen=True)
class Load:
    """To the solution: execute its file, which may compile what it contains. The response is None, or a Refusal."""


@dataclass(frozen=True)
class Describe:
    """To the problem: what it is. The response is a ProblemDescription, or a Refusal."""


@dataclass(frozen=True)
class Restore:
    """To the problem: another description, or the same in a new process. The response is that description."""

    description: ProblemDescription


@dataclass(frozen=True)
class GetSetting:
    """To the problem: what a solution is given at these dims. The response is a Setting or a Refusal."""

    dims: Mapping[str, int]


@dataclass(frozen=True)
class MakeValues:
    """To the problem: the values that it makes itself. The response maps names to words, or is a Refusal."""

    dims: Mapping[str, int]
    seed: int


@dataclass(frozen=True)
class Refusal:
    """The problem cannot be run, at these dims or at all.

    `kind` names a class of `problem.description`, or the outcome with which its process ended; or it is empty.
    """

    text: str
    kind: str = ""


@dataclass(frozen=True)
class TensorWords:
    """A tensor as data: its words in an array of its shape."""

    words: np.ndarray
    dtype: str


Outputs = Mapping[str, TensorWords]


def same_words(first: Outputs, other: Outputs) -> bool:
    """Whether outputs have the same names, and the same shape and words under each."""
    return set(first) == set(other) and all(np.array_equal(first[name].words, other[name].words) for name in first)


@dataclass(frozen=True)
class Compare:
    """To the problem: compare the outputs of a case's last call with the reference, to an OutputComparison."""

    case: Case
    outputs: Outputs
    by_own_rule: bool = False


@dataclass(frozen=True)
class OutputComparison:
    """What the reference says of outputs: the finding, if any, and the worst error over its bound.

    `eager` is the error of the problem's own code in the same dtype, where it is wrong in one of the outputs as well.
    `own_rule` is what the format's rule says, None where it was not asked. `seconds` are those of the processor.
    """

    finding: Finding | None
    worst: float = 0.0
    eager: EagerDeviation | None = None
    own_rule: bool | None = None
    refusal: str = ""
    seconds: float = 0.0

    @property
    def is_excused(self) -> bool:
        """Whether the problem's own code errs as much."""
        return self.finding is not None and self.eager is not None and self.eager.shares(self.finding)


@dataclass(frozen=True)
class RunProblem:
    """To the problem: run its own code on a case, in the case's dtypes. The response is None, or a Refusal."""

    case: Case


@dataclass(frozen=True)
class MeasureMemory:
    """To a problem's process that has run nothing: run its own code on a case as the solution is run.

    The response is the bytes by which the process grew, or a Refusal.
    """

    case: Case


@dataclass(frozen=True)
class AdjudicateOutputs:
    """To the problem: the verdict on outputs that disagree. The response is a Verdict."""

    case: Case
    outputs: Outputs
    seconds: float


@dataclass(frozen=True)
class DiagnoseOutputs:
    """To the problem: what is wrong with the outputs of a case, in words that those of its least case bear out.

    Both are cases with outputs that disagree. The response is a tuple of sentences.
    """

    case: Case
    outputs: Outputs
    least: Case
    least_outputs: Outputs


@dataclass(frozen=True)
class RunSolution:
    """To the solution: run a case, whose values are words, each call with its setting.

    `launch` is False where kernels are to be left out, and `fill` is what memory that nobody wrote holds in one call,
    None where that is poison. `steps` are numbers of calls to make one after the other with
    the same module, each with whether its tensors lie in the memory of the step before; empty for one call. With
    `races` the findings are places at which programs of a launch load or store what another one stores, with `copies`
    it is observed whether launches only copy. With `benchmarks` autotuners launch their configurations in one call, as
    in a first one. Steps that would begin after so many `seconds` are left out. In steps whose places are `spoiled` no
    kernel is run, and what launches are given holds nothing of use any more, unless it is the caller's.
    """

    description: ProblemDescription
    case: Case
    settings: tuple[Setting, ...]
    launch: bool = True
    steps: tuple[tuple[int, bool], ...] = ()
    races: bool = False
    copies: bool = False
    seconds: float = math.inf
    fill: float | None = None
    benchmarks: bool = False
    spoiled: tuple[int, ...] = ()


@dataclass(frozen=True)
class SolutionReport:
    """How a run ended, and, where it returned, the outputs of every step, with what was seen of memory and conduct.

    `launches` counts launches, `kernels_defined` the kernels in the solution's file; `conduct` are reasons why the
    solution is no honest one, `trouble` what a launch raised and the solution caught. `is_cut`
    says that a kernel was launched with tensors that autograd follows, and so lost them. `step_launches` counts the
    launches of each step, `step_operations` names the operations of PyTorch. `only_copies` says that each launch that
    wrote anything wrote copies of its arguments, where that was observed. `renamed` are weights of other names than the
    problem's, and which they stand for. `in_tf32` says that products of float32 may have read their operands in tf32.
    `configs` is the most configurations that an autotuner chose from. `written` are the words of tensors that launches
    wrote, where that was observed and each wrote one word only.
    """

    outcome: Outcome
    outputs: tuple[Outputs, ...] = ()
    findings: tuple[Finding, ...] = ()
    launches: int = 0
    conduct: tuple[str, ...] = ()
    trouble: str = ""
    kernels_defined: int = 0
    is_cut: bool = False
    renamed: str = ""
    step_launches: tuple[int, ...] = ()
    step_operations: tuple[tuple[str, ...], ...] = ()
    only_copies: bool = False
    in_tf32: bool = False
    configs: int = 0
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScriptConfig:
    """How the process of a program is set up: the program's file."""

    path: Path


@dataclass(frozen=True)
class RunScript:
    """To the program: run it; without `poison` memory that nobody wrote holds a plain number.

    `order` permutes the programs of every launch as in `cpu.observe`; `races` observes loads of what another program
    of a launch stores.
    """

    poison: bool = True
    order: int | None = None
    races: bool = False


@dataclass(frozen=True)
class ScriptReport:
    """What was seen: wrong accesses, the kernels launched, what the program raised, a digest of what it computed.

    `order` is that of the request.
    """

    findings: tuple[Finding, ...]
    kernels: tuple[str, ...]
    raised: str = ""
    digest: str = ""
    order: int | None = None
