"""Runs in the process that holds the solution: runs it on words, observes its memory, its launches and its conduct."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.execute import FatalError, outcome_of_error, run
from fuzz.backends.guarded_memory import DTYPE_NAMES, read_words
from fuzz.backends.launcher_allocations import LauncherAllocations, fill_without_poison
from fuzz.backends.triton_host import autotune
from fuzz.errors import UsageError, one_line
from fuzz.judge.formats import load_solution
from fuzz.judge.formats.base import name_outputs
from fuzz.judge.formats.inline_extensions import build_extensions_in, describe_missing_tool
from fuzz.judge.formats.weights import FILLS, Weight
from fuzz.judge.problem.description import (
    ArgumentDescription,
    NotComparable,
    Setting,
    Unsupported,
    UnsupportedHere,
    fill_slots,
)
from fuzz.judge.problem.target import make_target
from fuzz.judge.processes.device import OnDevice, stay_on_processor
from fuzz.judge.processes.launch_log import LaunchLog
from fuzz.judge.processes.problem_worker import as_tensor, as_words
from fuzz.judge.processes.refusals import as_refusal
from fuzz.judge.processes.requests import (
    Load,
    Outputs,
    Refusal,
    RunSolution,
    SolutionConfig,
    SolutionReport,
    TensorWords,
    same_words,
)
from fuzz.judge.processes.sandbox import ConductRecord, hide_files, leave_network, limit_files
from fuzz.judge.processes.script_worker import as_finding
from fuzz.model.case import Call
from fuzz.model.outcome import Returned
from fuzz.oracles.bounds import BoundsOracle
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.mutation import MutationOracle
from fuzz.worker.channel import LastResponse

Tensors = Mapping[str, torch.Tensor]
KEPT = 40
"""Steps whose outputs are kept, and must not change in later ones."""


class OperationLog(DispatchMode):
    """While active, keeps the names of the operations that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(str(getattr(func, "_overloadpacket", func)))
        return func(*args, **(kwargs or {}))


class SolutionHandler:
    """Answers the requests to a solution's process."""

    def __init__(self, config: SolutionConfig) -> None:
        self.isolation = leave_network() or hide_files(config.secret, config.build_folder)
        limit_files()
        config.extensions.mkdir(parents=True, exist_ok=True)
        build_extensions_in(config.extensions)
        torch.set_num_threads(1)
        self.config = config
        self.backend: Backend = named_backend(config.backend)
        if not self.backend.is_accelerator:
            stay_on_processor()
        self.conduct = ConductRecord([config.path], config.secret, config.task_folder, config.sources)
        self.setting = Setting()
        self.described: Mapping[str, ArgumentDescription] = {}
        self.backward = False
        self.modules: dict[str, Callable[..., Any]] = {}
        self.lazy: dict[str, None] = {}
        self.solution: Any = None
        self.load_error: Exception | None = None

    def load(self) -> None:
        """Executes the solution's file, once. Raises what it raises."""
        if self.solution is None:
            with self.device_mode(), self.backend.uninstrumented(), self.conduct.watch():
                self.solution = load_solution(
                    self.config.format, self.config.path, self.config.task, self.config.sources
                )

    def refuse_to_load(self, error: Exception) -> Refusal:
        """Why the solution cannot be loaded, and whether that is this machine's fault."""
        if missing := describe_missing_tool(error, has_gpu=self.backend.is_accelerator):
            return Refusal(f"what the solution compiles cannot be built here: {missing}", UnsupportedHere.__name__)
        return Refusal(f"the solution cannot be loaded: {one_line(error)}", Unsupported.__name__)

    def device_mode(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.backend.is_accelerator else OnDevice(self.backend.device)

    def __call__(self, request: RunSolution | Load) -> SolutionReport | Refusal | LastResponse | None:
        if reason := self.backend.fork_reason():
            return Refusal(f"the solution cannot be run here: {reason}", UnsupportedHere.__name__)
        try:
            self.load()
        except (NotComparable, Unsupported) as error:
            # Of these it is judged; across the process a UsageError loses its class.
            return Refusal(str(error), type(error).__name__)
        except UsageError:
            raise
        except Exception as error:
            return self.refuse_to_load(error)
        if isinstance(request, Load):
            return None
        self.modules, self.lazy = {}, {}
        self.described = request.description.arguments
        log = LaunchLog(not request.launch, request.copies)
        try:
            with log.patch(), self.device_mode(), log.tf32 if self.backend.is_accelerator else nullcontext():
                return self.answer(request, log)
        except (NotComparable, Unsupported) as error:
            return Refusal(str(error), type(error).__name__)
        except UsageError as error:
            return Refusal(one_line(error), UnsupportedHere.__name__)
        except FatalError as fatal:
            return LastResponse(SolutionReport(fatal.outcome))

    def answer(self, request: RunSolution, log: LaunchLog) -> SolutionReport:
        report = self.run_steps(request, log) if request.steps else self.run_once(request)
        trouble = log.troubles[0] if log.troubles and not log.count and request.launch else ""
        conduct = (*report.conduct, *self.lazy, *self.conduct.collect())
        defined = self.solution.count_kernels()
        if self.backend.is_accelerator:
            log.tf32.look_at_settings(self.config.extensions)
        return replace(
            report, launches=log.count, kernels_defined=defined, trouble=trouble, conduct=conduct, is_cut=log.is_cut,
            renamed=self.solution.renamed, only_copies=log.copying > 0 and not log.computing,
            in_tf32=log.tf32.may_use_tf32, configs=autotune.count_configs(), written=tuple(log.written or ()),
        )  # fmt: skip

    def run_once(self, request: RunSolution) -> SolutionReport:
        """One call in guarded, poisoned memory."""
        # A case of several calls repeats one.
        self.setting = request.settings[-1]
        self.backward = bool(request.case.last.cotangents)
        target = make_target(request.description, launcher=self.launch, backward=self.backward)
        filled = nullcontext() if request.fill is None else fill_without_poison(request.fill)
        observed = self.backend.observe_races() if request.races else nullcontext()
        benchmarked = autotune.launch_benchmarks() if request.benchmarks else nullcontext()
        with filled, observed, benchmarked:
            outcome = run(target, self.watch_launch, request.case.calls, self.backend)
        if not isinstance(outcome, Returned):
            return SolutionReport(outcome)
        if request.races:
            return SolutionReport(Returned(()), findings=tuple(as_finding(one) for one in outcome.calls[-1].accesses))
        exam = Examination(target, self.launch, request.case, self.backend, without_conflicts(outcome))
        findings = [oracle.check_case(exam) for oracle in (BoundsOracle(), MutationOracle())] if request.launch else []
        outputs = tuple(as_words(call.outputs) for call in outcome.calls)
        plain = Returned(tuple(replace(call, outputs={}, accesses=()) for call in outcome.calls))
        return SolutionReport(plain, outputs, tuple(one for one in findings if one is not None))

    def run_steps(self, request: RunSolution, log: LaunchLog) -> SolutionReport:
        """Several calls of one module, their tensors in new memory or in that of the step before.

        Steps that begin after the request's seconds are left out. Outputs that a call has given before are the same
        objects again, so that many equal ones take no more memory, nor time to send, than one.
        """
        self.backward = False
        counts: list[int] = []
        operations: list[tuple[str, ...]] = []
        kept: list[tuple[Tensors, Tensors]] = []
        words: list[Outputs] = []
        alive: list[Tensors] = []
        earlier: dict[int, list[Outputs]] = {}
        end = time.monotonic() + request.seconds
        try:
            with self.backend.session(None) as session, LauncherAllocations(session.on_operation), self.conduct.watch():
                for place, (number, same_memory) in enumerate(request.steps):
                    self.setting = request.settings[number]
                    tensors = self.place(request.case.calls[number], alive[-1] if same_memory and alive else {})
                    alive.append(tensors)
                    log.spared = storages(tensors) if place in request.spoiled else None
                    with OperationLog() as dispatched:
                        outputs = self.launch(**tensors, **request.case.calls[number].dims)
                    operations.append(tuple(dispatched.names))
                    self.backend.synchronize()
                    # Outputs may lie in the memory of arguments, which later steps overwrite.
                    copies = {name: value.clone() for name, value in outputs.items()}
                    words.append(share_equal(as_words(copies), earlier.setdefault(number, [])))
                    counts.append(log.count - sum(counts))
                    if len(kept) < KEPT:
                        own = memory_of_its_own(outputs, tensors)
                        kept.append((own, {name: value.clone() for name, value in own.items()}))
                    if time.monotonic() > end:
                        break
        except UsageError:
            raise
        except Exception as error:
            return SolutionReport(outcome_of_error(error, self.backend), tuple(words))
        return SolutionReport(
            Returned(()), tuple(words), conduct=tuple(find_changed(kept)), step_launches=tuple(counts),
            step_operations=tuple(operations),
        )  # fmt: skip

    def place(self, call: Call, earlier: Tensors) -> dict[str, torch.Tensor]:
        """A call's tensors: in the memory of earlier ones where they are given and fit, else in their own."""
        placed = {}
        for name, argument in call.arguments.items():
            words = argument.bits(call.dims)
            value = as_tensor(TensorWords(words, argument.dtype)).to(self.backend.device)
            old = earlier.get(name)
            if old is None or old.shape != value.shape:
                placed[name] = value.clone()
            else:
                # Where nothing changes, autograd's version counter must not say so.
                placed[name] = old if np.array_equal(read_words(old), words) else old.copy_(value)
        return placed

    def watch_launch(self, **arguments: Any) -> dict[str, torch.Tensor]:
        """Calls the solution once, and records what it replaces meanwhile."""
        with self.conduct.watch():
            return self.launch(**arguments)

    def launch(self, **arguments: Any) -> dict[str, torch.Tensor]:
        """Calls the solution with tensors and sizes by name; its outputs by name."""
        tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        key = repr(self.setting.construct)
        if key not in self.modules:
            self.modules[key] = self.solution.build(self.setting)
        module = self.modules[key]
        slots = set(slot_names((self.setting.call, dict(self.setting.keywords))))
        state = {name: value for name, value in tensors.items() if name not in slots}
        wanted = [describe_weight(name, value, self.described[name]) for name, value in state.items()]
        self.solution.set_state(module, {name: value.detach() for name, value in state.items()}, wanted)
        try:
            outputs = name_outputs(self.call_module(module, state, tensors))
        except Exception as error:
            raise as_refusal(error) from None
        for name, value in outputs.items():
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                self.lazy[f"{name} is a {type(value).__name__}, no plain tensor"] = None
            if value.dtype not in DTYPE_NAMES:
                raise Unsupported(f"{name} is {value.dtype}")
        return outputs if self.backward else {name: value.detach() for name, value in outputs.items()}

    def call_module(self, module: Any, state: Tensors, tensors: Tensors) -> Any:
        """What the solution returns for these tensors."""
        positional = tuple(fill_slots(self.setting.call, tensors))
        keywords = fill_slots(dict(self.setting.keywords), tensors)
        if self.backward:
            return self.solution.call_differentiably(module, state, positional, keywords)
        with torch.no_grad():
            return module(*positional, **keywords)


def describe_weight(name: str, value: torch.Tensor, described: ArgumentDescription) -> Weight:
    """A part of the problem's state, as a solution's is matched with it."""
    made_by = described.declared.name if described.declared is not None else ""
    fill = made_by if made_by in FILLS else ""
    return Weight(name, tuple(value.shape), fill, not described.is_buffer)


def slot_names(value: Any) -> Iterator[str]:
    """The names of all slots in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from slot_names(part)
    elif hasattr(value, "name"):
        yield value.name


def without_conflicts(outcome: Returned) -> Returned:
    """Without stores of different values to one element: where programs work on equal rows they are no mistake."""
    calls = [replace(c, accesses=tuple(one for one in c.accesses if one.kind != "conflict")) for c in outcome.calls]
    return Returned(tuple(calls))


def share_equal(outputs: Outputs, earlier: list[Outputs]) -> Outputs:
    """The first of earlier outputs with the same words, or these, which become the last of them."""
    found = next((one for one in earlier if same_words(one, outputs)), None)
    if found is None:
        earlier.append(outputs)
    return found or outputs


def memory_of_its_own(outputs: Tensors, arguments: Tensors) -> Tensors:
    """The outputs that do not lie in the memory of an argument, which is the caller's."""
    given = storages(arguments)
    return {name: value for name, value in outputs.items() if value.untyped_storage().data_ptr() not in given}


def storages(tensors: Tensors) -> set[int]:
    """The addresses of the memory that tensors lie in."""
    return {value.untyped_storage().data_ptr() for value in tensors.values()}


def find_changed(kept: Sequence[tuple[Tensors, Tensors]]) -> Iterator[str]:
    """Outputs of earlier calls that later calls have changed."""
    for number, (outputs, copies) in enumerate(kept):
        for name, value in outputs.items():
            if not torch.equal(value.nan_to_num(), copies[name].nan_to_num()):
                yield f"{name} of call {number + 1} changes when it is called again: calls share memory"
                return


def make_handler(config: SolutionConfig) -> Callable[[RunSolution | Load], Any]:
    """Makes the handler of the solution's process."""
    return SolutionHandler(config)
