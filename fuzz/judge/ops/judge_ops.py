"""Judges each operation that a module, or a folder of BackendBench, implements, on samples of PyTorch's own."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.backends import backend as named_backend
from fuzz.errors import UsageError
from fuzz.judge.formats import OPS
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.ops.requests import (
    REGISTRATION_HANDLER,
    SAMPLE_HANDLER,
    FindSamples,
    ListOperations,
    SampleConfig,
    SampleFile,
)
from fuzz.judge.problem.description import NotComparable, Unsupported
from fuzz.judge.processes.first_dims import EAGER_SECONDS, ELEMENTS, FIRST_SECONDS
from fuzz.judge.processes.isolated_worker import IsolatedWorker, ProblemProcess, RunLog, start_solution
from fuzz.judge.processes.requests import Describe, ProblemConfig, Refusal, SolutionConfig
from fuzz.judge.referee import CALL_STAGES, ORDINARY_STAGES, Referee
from fuzz.judge.result.judgement import (
    CHEAT,
    NOT_COMPARABLE,
    PROBLEM,
    RIGHT,
    SOLUTION,
    UNDECIDED,
    UNSUPPORTED,
    WRONG,
    Evidence,
    Judgement,
)
from fuzz.model.oracle_specs import FAULT
from fuzz.worker.deadline import Deadline
from fuzz.worker.worker import Worker, WorkerCrash

LIST_SECONDS = 120.0
"""Seconds that a module may take to be loaded."""
SAMPLE_SECONDS = 300.0
"""Seconds that it may take to find the samples of an operation: the first time all of OpInfo may be looked at."""
IMPLEMENTATIONS = "{folder}_implementation*.py"
"""The files in a folder of BackendBench, of which it takes the first."""


@dataclass(frozen=True)
class Implementation:
    """An operation, the file that registers it, and what it is compared with, or why it cannot be judged."""

    operation: str
    path: Path
    counterpart: str = ""
    refusal: str = ""


def judge_operations(
    options: JudgeOptions, announce: Callable[[str], object], most: tuple[int, int] = (6, 2)
) -> Iterator[Judgement]:
    """The judgement of each operation that the solution's module or folder implements.

    `most` are the samples of an operation in the first dtype that it takes, and in each other one.
    Raises UsageError where there is none.
    """
    implementations = list(list_implementations(options.solution, options.process_memory))
    with tempfile.TemporaryDirectory(prefix="fuzz-judge-") as folder:
        config = SampleConfig(Path(folder), *most)
        with Worker(SAMPLE_HANDLER, config, options.process_memory, SAMPLE_SECONDS) as finder:
            for one in implementations:
                if len(implementations) > 1:
                    announce(f"judging {one.operation}")
                yield judge_operation(one, replace(options, solution=one.path), finder)


def list_implementations(path: Path, memory: int) -> Iterator[Implementation]:
    """What a module registers, or each file of a folder of BackendBench. Raises UsageError where there is nothing."""
    files = list(list_files(path))
    if not files:
        raise UsageError(f"there is no implementation in {path}: no folder has a file {IMPLEMENTATIONS}")
    for file in files:
        found = list_registered(file, memory)
        if isinstance(found, str):
            yield Implementation(f"aten::{file.parent.name}" if path.is_dir() else str(file), file, refusal=found)
        else:
            yield from (Implementation(operation, file, counterpart) for operation, counterpart in found)


def list_files(path: Path) -> Iterator[Path]:
    """The module itself, or the first file of each folder of a BackendBench folder."""
    if not path.is_dir():
        yield path
        return
    for folder in sorted(one for one in path.iterdir() if one.is_dir()):
        yield from sorted(folder.glob(IMPLEMENTATIONS.format(folder=folder.name)))[:1]


def list_registered(path: Path, memory: int) -> tuple[tuple[str, str], ...] | str:
    """The operations that a module registers with what they are compared with, or why they cannot be known."""
    with Worker(REGISTRATION_HANDLER, None, memory, LIST_SECONDS) as worker:
        found = worker.call(ListOperations(path.resolve()))
    if isinstance(found, WorkerCrash):
        return f"the module ends its process: {found.outcome}"
    if isinstance(found, Refusal):
        return found.text
    assert isinstance(found, tuple)
    return found or "it registers no implementation"


def judge_operation(one: Implementation, options: JudgeOptions, finder: Worker) -> Judgement:
    """The judgement of one operation, over all its samples."""
    start = time.monotonic()
    judgement = Judgement(RIGHT, "", one.operation, str(one.path), named_backend(options.backend).name)
    samples = finder.call(FindSamples(one.operation, one.counterpart)) if not one.refusal else Refusal(one.refusal)
    if isinstance(samples, WorkerCrash):
        samples = Refusal(f"its samples cannot be made: {samples.outcome}")
    if isinstance(samples, Refusal):
        judgement.verdict, judgement.reason = UNSUPPORTED, samples.text
        judgement.cause = SOLUTION if one.refusal else PROBLEM
    else:
        judgement = judge_samples(options, one.operation, samples)
    judgement.seconds = time.monotonic() - start
    return judgement


@dataclass
class SampleReferee(Referee):
    """Examines an implementation on one sample. What it refuses is counted: it may take other samples.

    What does not depend on the sample is examined on the first one. Other dtypes have samples of their own.
    """

    is_first: bool = False

    def stages(self) -> Mapping[str, Callable[[], None]]:
        names = ORDINARY_STAGES + (CALL_STAGES if self.is_first else ())
        every = super().stages()
        return {name: every[name] for name in names}

    @property
    def wants_gradients(self) -> bool:
        """Whether the operation writes nothing; it has gradients where something is registered for autograd."""
        return not self.description.in_place

    def check_refusals(self) -> None:
        """All samples together say whether it refuses too much."""

    def examine_launches(self) -> None:
        """Kernels that it never launches may be those of other operations, and one element may be right by chance."""
        outputs = [math.prod(map(int, one.shape)) for one in self.description.outputs.values()]
        if (self.worker.log.launches or self.worker.log.trouble) and max(outputs, default=0) > 1:
            super().examine_launches()


def judge_samples(options: JudgeOptions, operation: str, samples: Sequence[SampleFile]) -> Judgement:
    """The judgement over all samples of an operation; what counts against an implementation ends it."""
    backend = named_backend(options.backend).name
    total = Judgement(RIGHT, "", operation, str(options.solution), backend)
    deadline = Deadline()
    # What another file has built says nothing of this one.
    build_folder = samples[0].path.parent / f"extensions-{options.solution.stem}"
    build_folder.mkdir(exist_ok=True)
    config = SolutionConfig(OPS, options.solution.resolve(), backend, build_folder)
    solution = start_solution(config, options.process_memory, FIRST_SECONDS, deadline)
    options = replace(options, seconds=options.seconds / len(samples))
    parts: list[Judgement] = []
    refused: dict[str, str] = {}
    try:
        for sample in samples:
            part = Judgement(RIGHT, "", operation, str(options.solution), backend)
            log = judge_sample(replace(options, problem=sample.path), part, solution, deadline, is_first=not parts)
            parts.append(part)
            if log.rejected and not log.returned:
                refused.setdefault(sample.dtype, log.rejection)
            add(total, part)
            if any(one.counts for one in part.evidence):
                break
    finally:
        solution.stop()
    conclude(total, parts, refused)
    return total


def judge_sample(
    options: JudgeOptions, judgement: Judgement, solution: Worker, deadline: Deadline, *, is_first: bool
) -> RunLog:
    """Examines one sample, and writes what is found into a judgement; what the runs have shown."""
    config = ProblemConfig(OPS, options.problem, judgement.backend, ELEMENTS[False], EAGER_SECONDS)
    problem = ProblemProcess.start(config, options.process_memory, deadline)
    log = RunLog()
    try:
        description = problem.call(Describe())
        if isinstance(description, Refusal):
            raise Unsupported(f"PyTorch's own operation cannot be run: {description.text}")
        worker = IsolatedWorker(problem, solution, description, log)
        SampleReferee(options, worker, judgement, deadline, is_first=is_first).run()
    except NotComparable as error:
        judgement.verdict, judgement.reason, judgement.cause = NOT_COMPARABLE, str(error), error.cause
    except Unsupported as error:
        judgement.verdict, judgement.reason, judgement.cause = UNSUPPORTED, str(error), error.cause
    finally:
        problem.worker.stop()
    return log


def add(total: Judgement, part: Judgement) -> None:
    """Adds what was tried and found with one sample."""
    total.cases, total.calls = total.cases + part.cases, total.calls + part.calls
    total.launches, total.refused = total.launches + part.launches, total.refused + part.refused
    total.evidence += part.evidence
    total.undecided += part.undecided
    total.is_slow |= part.is_slow
    total.cut_off += part.cut_off
    total.kinds = list(dict.fromkeys((*total.kinds, *part.kinds)))
    if part.own_rule is not None:
        total.own_rule = part.own_rule and total.own_rule is not False


def conclude(total: Judgement, parts: Sequence[Judgement], refused: Mapping[str, str]) -> None:
    """Sets the verdict by those of the samples. `refused` says by dtype why samples were refused."""
    counting = [one for one in parts if one.verdict in (WRONG, CHEAT)]
    right = [one for one in parts if one.verdict == RIGHT]
    left = next((one for one in parts if one.verdict not in (RIGHT, WRONG, CHEAT, UNDECIDED)), None)
    total.notes += [f"refuses {dtype}: {reason}" for dtype, reason in refused.items()]
    if counting:
        total.verdict, total.reason = counting[0].verdict, counting[0].reason
    elif total.undecided:
        total.decide()
    elif right:
        total.reason = f"nothing is wrong in {total.cases} cases of {len(right)} samples"
        if left is not None and not refused:
            total.notes.append(f"{len(parts) - len(right)} samples were left out: {left.reason}")
    elif refused:
        message = f"it refuses every input that PyTorch's own tests give: {next(iter(refused.values()))}"
        total.evidence.append(Evidence(FAULT.name, ("launcher",), "raised", message, "high"))
        total.verdict, total.reason = WRONG, message
    elif left is not None:
        total.verdict, total.reason, total.cause = left.verdict, left.reason, left.cause
