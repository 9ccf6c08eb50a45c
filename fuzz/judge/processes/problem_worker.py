"""Runs in the process that holds the problem: makes its inputs, evaluates its reference, compares outputs with it."""

from __future__ import annotations

import os
import resource
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from fuzz.backends import BACKENDS, DEFAULT
from fuzz.backends.autodiff import gradients, make_writable
from fuzz.backends.guarded_memory import DTYPE_NAMES, TORCH_DTYPES, allocate_buffer, read_words
from fuzz.backends.launcher_allocations import LauncherAllocations
from fuzz.errors import FuzzError, TargetError, UsageError, one_line
from fuzz.judge.formats import load_problem
from fuzz.judge.formats.base import Problem, Tensors
from fuzz.judge.problem.description import NotComparable, ProblemDescription, Setting, Unsupported
from fuzz.judge.problem.target import make_target
from fuzz.judge.processes.describe import describe
from fuzz.judge.processes.device import OnDevice, stay_on_processor
from fuzz.judge.processes.requests import (
    AdjudicateOutputs,
    Compare,
    Describe,
    DiagnoseOutputs,
    GetSetting,
    MakeValues,
    MeasureMemory,
    OutputComparison,
    Outputs,
    ProblemConfig,
    Refusal,
    Restore,
    RunProblem,
    TensorWords,
)
from fuzz.judge.processes.scale_down import Work, measure_work
from fuzz.model.case import Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding, Verdict
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.outcome import CallResult, Returned
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.accuracy import AccuracyOracle, check_call
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.comparison.expected import reference_inputs
from fuzz.oracles.diagnosis.input_precision import ADVICE
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.dispatch import NoRule
from fuzz.target.spec import Target
from fuzz.worker.protocol import EagerDeviation
from fuzz.worker.system import resident

LEAST_WORK, STATED_WORK = Work(1 << 20, 1 << 27), Work(1 << 23, 1 << 28)
"""What any case may take, and one at dims that the problem states; others may take as much as the first one."""


class ProblemHandler:
    """Answers the requests to a problem's process."""

    def __init__(self, config: ProblemConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.backend = BACKENDS[config.backend]
        # The problem asks for a GPU as its solutions do; its process runs on the processor.
        DEFAULT.prepare()
        stay_on_processor()
        self.problem: Problem
        self.refusal = self.load()
        self.description: ProblemDescription | None = None
        self.targets: dict[tuple[bool, bool], Target] = {}
        self.most_work: Work | None = None

    def load(self) -> Refusal | None:
        """Loads the problem, which may execute its code; why that cannot be done, None where it is."""
        try:
            self.problem = load_problem(self.config.format, self.config.path, self.config.spec)
        except (NotComparable, Unsupported) as error:
            return Refusal(str(error), type(error).__name__)
        except UsageError:
            raise
        except Exception as error:
            return Refusal(f"the problem cannot be loaded: {one_line(error)}", Unsupported.__name__)
        return None

    def __call__(self, request: Any) -> Any:
        if self.refusal is not None:
            return self.refusal
        try:
            with OnDevice(DEFAULT.device):
                return self.answer(request)
        except (NotComparable, Unsupported) as error:
            return Refusal(str(error), type(error).__name__)
        except UsageError:
            raise
        except Exception as error:
            if is_own_fault(error):
                raise
            # The problem's code raised it: at these dims there is nothing to compare with.
            return Refusal(one_line(error))

    def answer(self, request: Any) -> Any:
        if isinstance(request, Describe):
            return self.describe()
        if isinstance(request, Restore):
            return self.restore(request.description)
        if isinstance(request, GetSetting):
            return self.setting(self.all_dims(request.dims))
        if isinstance(request, MakeValues):
            arguments, state = self.problem.make(self.all_dims(request.dims), request.seed)
            return {
                name: TensorWords(read_words(value), DTYPE_NAMES[value.dtype])
                for name, value in {**arguments, **state}.items()
            }
        if isinstance(request, Compare):
            start = time.process_time()
            return replace(self.compare(request), seconds=time.process_time() - start)
        if isinstance(request, RunProblem):
            self.eager_outputs(self.examination(request.case, {}))
            return None
        if isinstance(request, MeasureMemory):
            return self.measure_memory(request.case)
        if isinstance(request, DiagnoseOutputs):
            return self.diagnose(request)
        assert isinstance(request, AdjudicateOutputs)
        return self.adjudicate(request)

    def describe(self) -> ProblemDescription:
        return self.restore(describe(self.problem, self.config.elements, self.config.seconds, self.config.flops))

    def restore(self, description: ProblemDescription) -> ProblemDescription:
        """Takes a description, as this process or one before it has found it."""
        self.description = description
        self.targets = {
            (backward, is_stated): make_target(
                description, self.compute_exactly, backward=backward, is_stated=is_stated
            )
            for backward, is_stated in product((False, True), (False, True))
        }
        work = measure_work(self.problem, description.dims)
        self.most_work = work.or_more(LEAST_WORK) if work else None
        return description

    def setting(self, dims: Mapping[str, int]) -> Setting | Refusal:
        """What a solution is given at these dims; a Refusal where the reference has much more to do than at first."""
        assert self.description is not None
        work, limit = measure_work(self.problem, dims) if self.most_work else None, self.most_work
        if work is not None and limit is not None:
            limit = limit.or_more(STATED_WORK) if self.description.states(dims) else limit
            if not work.fits(limit):
                return Refusal("the problem takes too much time or memory at these dims")
        return self.problem.setting(dims)

    def compute_exactly(self, dims: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> Tensors:
        """The outputs in float64."""
        return self.problem.compute(dims, tensors, torch.float64)

    def all_dims(self, dims: Mapping[str, int]) -> dict[str, int]:
        """The dims of a case, and the constants that are none."""
        assert self.description is not None
        return {**self.description.dims, **dims}

    def examination(self, case: Case, outputs: Mapping[str, torch.Tensor]) -> Examination:
        assert self.description is not None
        floats = {one.dtype for one in case.last.arguments.values() if one.is_float}
        is_stated = bool(floats) and self.description.stated_dtypes.issuperset(floats)
        target = self.targets[bool(case.last.cotangents), is_stated]
        self.problem.prepare(self.all_dims(case.last.dims))
        returned = Returned((CallResult(outputs),))
        return Examination(target, target.launcher, case, self.backend, returned)

    def compare(self, request: Compare) -> OutputComparison:
        outputs = {name: as_tensor(value) for name, value in request.outputs.items()}
        exam = self.examination(request.case, outputs)
        eager = without_missing_gradients(self.eager_outputs(exam), outputs, request.case.last)
        own_rule = self.problem.own_rule(outputs, eager) if request.by_own_rule and set(outputs) == set(eager) else None
        if reason := differing_form(outputs, eager, same_dtypes=self.asks_for_dtypes(request.case)):
            own_rule = False if request.by_own_rule else None
            return OutputComparison(
                Finding(ACCURACY.name, tuple(eager), "value", reason, ratio=torch.inf), own_rule=own_rule
            )
        try:
            finding = check_call(exam, 0)
        except TargetError as error:
            if isinstance(error.__cause__, NoRule) and not request.case.last.cotangents:
                raise NotComparable(str(error.__cause__)) from None
            return OutputComparison(None, own_rule=own_rule, refusal=str(error))
        return OutputComparison(finding, exam.worst, self.eager_deviation(request.case, eager, finding), own_rule)

    def asks_for_dtypes(self, case: Case) -> bool:
        """Whether outputs have the dtypes of the problem's own: by its format, and in dtypes that it states.

        In others it may compute in another dtype than a solution does, which follows its arguments.
        """
        assert self.description is not None
        described, stated = self.description.arguments, self.description.stated_dtypes
        return self.problem.fixes_dtypes and all(
            one.dtype == described[name].dtype or one.dtype in stated for name, one in case.last.arguments.items()
        )

    def measure_memory(self, case: Case) -> int:
        """The bytes by which this process grows while it runs the problem's own code on a case.

        Tensors lie as the solution's do: some operations of PyTorch need far more for some layouts.
        """
        exam, before = self.examination(case, {}), resident(os.getpid())
        buffers = {
            name: allocate_buffer(name, value, case.last.dims, DEFAULT.device)
            for name, value in case.last.arguments.items()
        }
        with LauncherAllocations():
            self.eager_outputs(exam, {name: one.tensor for name, one in buffers.items()})
        return max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)

    def eager_outputs(self, exam: Examination, placed: Tensors | None = None) -> dict[str, torch.Tensor]:
        """The outputs of the problem's own code in the dtypes of the case, of `placed` tensors where they are given."""
        call = exam.case.last
        inputs, cotangents = reference_inputs(exam, 0)
        tensors = placed or {name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        floats = [named for name in tensors if (named := call.arguments[name]).is_float]
        dtype = TORCH_DTYPES[floats[0].dtype] if floats else torch.get_default_dtype()
        dims = self.all_dims(call.dims)
        if not cotangents:
            with torch.no_grad():
                return self.problem.compute(dims, tensors, dtype)

        def compute(leaves: Mapping[str, torch.Tensor]) -> Tensors:
            return self.problem.compute(dims, make_writable(leaves, exam.target.in_place), dtype)

        found = gradients(compute, tensors, {name: value.to(dtype) for name, value in cotangents.items()})
        return {name: value.detach() for name, value in found.items()}

    def eager_deviation(
        self, case: Case, eager: Mapping[str, torch.Tensor], finding: Finding | None
    ) -> EagerDeviation | None:
        """The error over the bound of the problem's own code, where it is wrong in an output of a finding as well."""
        own = check_call(self.examination(case, eager), 0) if finding is not None else None
        if own is None or finding is None or not set(own.outputs) & set(finding.outputs):
            return None
        floats = [value.dtype for value in eager.values() if value.is_floating_point()]
        return EagerDeviation(DTYPE_NAMES[floats[0]] if floats else "", own.ratio, own.symptom)

    def diagnose(self, request: DiagnoseOutputs) -> tuple[str, ...]:
        """What is wrong with values, in words; nothing where an output has another form, or is no floating number."""
        exams = []
        for case, words in ((request.case, request.outputs), (request.least, request.least_outputs)):
            outputs = {name: as_tensor(value) for name, value in words.items()}
            exam = self.examination(case, outputs)
            eager = without_missing_gradients(self.eager_outputs(exam), outputs, case.last)
            if differing_form(outputs, eager) or not all(one.is_floating_point() for one in eager.values()):
                return ()
            exams.append(exam)
        try:
            found = AccuracyOracle().diagnose(*exams)
        except Exception as error:
            # What is wrong is certain already, and what could be said of it is no reason to lose that.
            return (f"the diagnosis failed: {one_line(error)}",)
        # Whoever reads it has a problem, and no target to declare anything in.
        return tuple(text.removesuffix(ADVICE) for text in found)

    def adjudicate(self, request: AdjudicateOutputs) -> Verdict:
        exam = self.examination(request.case, {name: as_tensor(value) for name, value in request.outputs.items()})
        try:
            finding = check_call(exam, 0)
        except TargetError as error:
            return Verdict("unadjudicated", str(error))
        if finding is None:
            return Verdict("unadjudicated", "it did not disagree again")
        return adjudicate(exam, finding, request.seconds)


def make_handler(config: ProblemConfig) -> Callable[[Any], Any]:
    """Makes the handler of the problem's process."""
    return ProblemHandler(config)


def is_own_fault(error: Exception) -> bool:
    """Whether this package raised an error, and not the problem or what it calls.

    The mode that places tensors passes on what PyTorch raises to whoever has called PyTorch.
    """
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    raising = next((name for name in reversed(frames) if name != OnDevice.__module__), "")
    return raising.partition(".")[0] == "fuzz" and not isinstance(error, FuzzError)


def as_tensor(value: TensorWords) -> torch.Tensor:
    return from_bits(value.words, named_dtype(value.dtype))


def as_words(outputs: Mapping[str, torch.Tensor]) -> Outputs:
    return {name: TensorWords(read_words(value), DTYPE_NAMES[value.dtype]) for name, value in outputs.items()}


def without_missing_gradients(
    expected: dict[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], call: Call
) -> dict[str, torch.Tensor]:
    """What is expected without gradients that a solution does not give: it need not be differentiable."""
    names = {f"d{name}" for name in call.arguments} if call.cotangents else set()
    return {name: value for name, value in expected.items() if name in outputs or name not in names}


def differing_form(
    outputs: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], *, same_dtypes: bool = False
) -> str:
    """What is not as the problem's own outputs are: their number, shapes, and dtypes or kinds of number; else empty."""
    if set(outputs) != set(expected):
        return f"it returns {', '.join(sorted(outputs)) or 'nothing'}, and the problem {', '.join(sorted(expected))}"
    for name, value in expected.items():
        output = outputs[name]
        if output.shape != value.shape:
            return f"{name} has shape {tuple(output.shape)}, and that of the problem {tuple(value.shape)}"
        differs = output.is_floating_point() != value.is_floating_point()
        if differs or same_dtypes and output.dtype != value.dtype:
            return f"{name} is {output.dtype}, and that of the problem {value.dtype}"
    return ""
