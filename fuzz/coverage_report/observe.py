"""Runs cases in a worker process and observes which code runs and with which values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
import triton
from coverage import Coverage

from fuzz.backends.autodiff import Computation
from fuzz.backends.base import CountedOutcome
from fuzz.backends.execute import FatalError, run
from fuzz.coverage_report.code_generation import CodeGeneration
from fuzz.coverage_report.protocol import Observations, Site, TensorKind, Value
from fuzz.coverage_report.scope import Scope, describe, parameters
from fuzz.model.case import Case
from fuzz.model.outcome import Outcome, Rejected, Returned
from fuzz.oracles.autograd import graphs_by_code
from fuzz.oracles.examine import set_up_process
from fuzz.target.spec import Target
from fuzz.worker.protocol import WorkerConfig

Result = TypeVar("Result")
MOST_VALUES = 16
"""Values of one parameter that are kept: more say nothing new."""


def make_handler(config: WorkerConfig) -> Callable[[Case], Observations]:
    """Makes the handler of a worker: a case -> what is observed of it."""
    target, launcher, backend = set_up_process(config)
    observer, turns = Observer(target.path), count()

    def run_case(case: Case) -> list[Outcome]:
        outcomes: list[Outcome] = []
        computations: list[Computation | None] = [None]
        try:
            for computation in computations:
                outcomes.append(run(target, launcher, case.calls, backend, computation=computation))
                if computation is None and isinstance(outcomes[0], Returned):
                    computations += choose_graph(target, case, turns)
        except FatalError as fatal:
            outcomes.append(fatal.outcome)
        return outcomes

    def handle(case: Case) -> Observations:
        outcomes = observer.observe(lambda: run_case(case))
        return observer.collect(outcomes, backend.counted_outcomes())

    return handle


def choose_graph(target: Target, case: Case, turns: Iterator[int]) -> list[Computation]:
    """One of the graphs of the oracle `autograd` in which other code may run, in turn; none where it has no say."""
    if not (target.differentiable and len(case.calls) == 1):
        return []
    graphs = graphs_by_code(target, case)
    return [graphs[next(turns) % len(graphs)].computation]


class Observer:
    """Observes Python code by coverage.py, its arguments by a profile function, and kernels by Triton's hooks."""

    def __init__(self, target_file: Path) -> None:
        self.scope = Scope(target_file)
        packages = [f"{Path(package.__file__ or '').parent}/*" for package in (torch, triton, np)]
        own = f"{Path(__file__).parents[1]}/*"
        self.coverage = Coverage(data_file=None, branch=True, config_file=False, include=["*"], omit=[*packages, own])
        self.current = Observations()
        self.generation = CodeGeneration()
        triton.knobs.runtime.jit_cache_hook = self._start_compilation
        triton.knobs.runtime.jit_post_compile_hook = self._record_compilation

    def observe(self, function: Callable[[], Result]) -> Result:
        """Calls a function, and observes what runs in this thread until it ends."""
        self.current = Observations(cases=1)
        self.coverage.erase()
        self.coverage.start()
        sys.setprofile(self._record_call)
        try:
            with self.generation.observed():
                return function()
        finally:
            sys.setprofile(None)
            self.coverage.stop()

    def collect(self, outcomes: Sequence[Outcome], counted: Sequence[CountedOutcome]) -> Observations:
        """What was observed, with what the counters of kernels say of each call that returned.

        The first outcome says whether the case was refused; others are of the same case in other graphs.
        """
        data, current, scope = self.coverage.get_data(), self.current, self.scope
        current.called = {function for function in scope.called.values() if function}
        files = {function.file for function in current.called}
        current.arcs = {file: {*(data.arcs(file) or ())} for file in files & data.measured_files()}
        current.referenced, current.kernels, current.wrapped = scope.referenced, scope.kernels, scope.wrapped
        sites = [Site(site.file, site.line, site.kernel, site.kind, site.outcome) for site in counted]
        current.counted = {*sites}
        for call in (call for outcome in outcomes if isinstance(outcome, Returned) for call in outcome.calls):
            occurred = np.flatnonzero(np.frombuffer(call.counted, dtype=np.uint8)).tolist()
            current.happened.update(sites[index] for index in occurred)
        current.rejected = int(isinstance(outcomes[0], Rejected))
        return current

    def _record_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or (function := self.scope.add_call(frame)) is None:
            return
        for name in parameters(frame.f_code):
            seen = self.current.values.setdefault((function, name), set())
            if len(seen) < MOST_VALUES:
                seen.add(describe_value(frame.f_locals[name]))

    def _start_compilation(self, **_: Any) -> None:
        self.generation.start()

    def _record_compilation(self, *, key: Any, fn: Any, compile: Any, **_: Any) -> None:
        kernel = fn.jit_function
        names = [parameter.name for parameter in kernel.params]
        constants = {path[0]: value for path, value in (compile["constants"] or {}).items() if len(path) == 1}
        by_name = tuple((names[place], describe_value(value)) for place, value in sorted(constants.items()))
        if function := describe(kernel.fn):
            self.current.constants.setdefault(function, set()).add(by_name)
        variants = kernel.device_caches[compile["device"]][0]
        for compiled, nodes in self.generation.finish(variants[key]).items():
            self.current.compiled.setdefault(compiled, set()).update(nodes)


def describe_value(value: object) -> Value:
    """What is kept of a value that a parameter was given."""
    if isinstance(value, torch.Tensor):
        return TensorKind(str(value.dtype).removeprefix("torch."), value.dim(), value.is_contiguous())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"a {type(value).__name__}"
