"""Runs one Case on one backend and returns its Outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import compress
from traceback import walk_tb
from typing import Any

import numpy as np
import torch

from fuzz.backends.autodiff import Computation, forward, gradients, make_writable
from fuzz.backends.base import Backend, Session, portable_path
from fuzz.backends.guarded_memory import (
    DTYPE_NAMES,
    Buffer,
    allocate_buffer,
    find_poison,
    may_hold_poison,
    read_flags,
    without_repetition,
)
from fuzz.backends.kept_outputs import KeptOutputs
from fuzz.backends.launcher_allocations import LauncherAllocations
from fuzz.backends.shortage import describe_shortage, is_out_of_memory
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import patched
from fuzz.errors import BackendError, TargetError, UsageError, one_line
from fuzz.escaping import clean_text
from fuzz.model.case import Call
from fuzz.model.outcome import CallResult, CompileError, NotRun, Outcome, OutOfMemory, Raised, Rejected, Returned
from fuzz.target.spec import Launcher, Target
from fuzz.worker.profile import measured

Words = Mapping[str, np.ndarray]
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
"""What a launcher raises to refuse an input."""
TOO_LARGE = ("array is too big", "Maximum allowed")
"""What numpy says of arrays beyond what addresses reach."""
SHARED_ELEMENTS = "more than one element of the written-to tensor refers to a single memory location"
"""What torch says where it refuses to write a tensor whose layout has a stride of 0."""


@dataclass
class InputsNotPlaced(Exception):
    """The inputs could not be put into memory, which is no fault of the kernel; holds the outcome, None where the
    error is our own."""

    outcome: Outcome | None


@dataclass
class FatalError(Exception):
    """The process cannot run another kernel; holds the outcome to report before it ends."""

    outcome: Outcome


@dataclass(frozen=True)
class CompletedCall:
    """One call that came back: its tensors in memory, what it returned and allocated, what the backend observed.

    `writable` names the arguments that it may write.
    """

    buffers: Mapping[str, Buffer]
    outputs: Mapping[str, torch.Tensor]
    allocations: LauncherAllocations
    session: Session
    writable: Collection[str]


def run(
    target: Target,
    launcher: Launcher,
    calls: Sequence[Call],
    backend: Backend,
    order: int | None = None,
    words: Words | None = None,
    computation: Computation | None = None,
    completed: list[CompletedCall] | None = None,
) -> Outcome:
    """Runs the calls in turn. `words` replaces the values of arguments; they have the layout's stored shape.

    `order` permutes the order of programs where the backend can. `computation` runs the launcher; by default it is
    called and, where the target is an autograd function, differentiated. Each call that came back is appended to
    `completed`. Raises TargetError for a target that contradicts itself, FatalError where the process cannot go on.
    """
    results, kept = [], KeptOutputs()
    try:
        for index, call in enumerate(calls):
            call_run = launch(target, launcher, call, backend, order, words or {}, computation, completed is not None)
            result = observe(target, call_run)
            results.append(replace(result, overwritten=kept.find_overwritten()) if index else result)
            if index + 1 < len(calls):
                kept.add(index, call_run.outputs, result.outputs, call_run.buffers.values())
            if completed is not None:
                completed.append(call_run)
        return Returned(tuple(results))
    except (UsageError, SystemExit):
        raise
    except InputsNotPlaced as error:
        cause = error.__cause__ or error
        if error.outcome is None:
            raise cause from None
        if backend.is_fatal(cause):
            raise FatalError(error.outcome) from cause
        return error.outcome
    except BaseException as error:
        # Whatever a launcher raises: nothing else interrupts a worker.
        return outcome_of_error(error, backend)


@measured("launch")
def launch(
    target: Target,
    launcher: Launcher,
    call: Call,
    backend: Backend,
    order: int | None,
    words: Words,
    computation: Computation | None = None,
    recording: bool = False,
) -> CompletedCall:
    """Runs one call in guarded, poisoned memory; `observe` then inspects that memory.

    With `recording` the operations of torch are kept for repeating them.
    """
    try:
        buffers = {
            name: allocate_buffer(name, value, call.dims, backend.device, words.get(name))
            for name, value in call.tensors.items()
        }
    except UsageError:
        raise
    except Exception as error:
        raise InputsNotPlaced(_placing_outcome(error, backend)) from error
    inputs = {name: buffers[name].tensor for name in call.arguments}
    cotangents = {name: buffers[f"grad {name}"].tensor for name in call.cotangents}
    scalars, writable = target.scalars(call), target.writable(call)

    def launch_with(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return check_outputs(target, launcher(**make_writable(tensors, writable), **scalars))

    compute = computation or (gradients if target.differentiable else forward)
    reported = knobs.set(**call.launch.as_dict()) if call.launch else nullcontext()
    with reported, backend.session(order) as session:
        recorder = LauncherAllocations(session.on_operation, session.launches if recording else None)
        with patched(recorder.host_reads() if recording else ()), recorder as allocations, torch_defaults_kept():
            outputs = compute(launch_with, inputs, cotangents)
        backend.synchronize()
    return CompletedCall(buffers, outputs, allocations, session, writable)


@contextmanager
def torch_defaults_kept() -> Iterator[None]:
    """Restores torch's defaults that a launcher has changed, as they would reach what examines its outputs."""
    dtype, device, autograd = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        if torch.get_default_device() != device:
            # A default device is looked up in each operation, so that there is none where it was the CPU.
            torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
        if torch.is_grad_enabled() != autograd:
            torch.set_grad_enabled(autograd)


def observe(target: Target, call_run: CompletedCall) -> CallResult:
    """The outputs of a call, and what it did to memory beside them."""
    outputs, writable = call_run.outputs, call_run.writable
    stored = {name: without_repetition(output.detach()) for name, output in outputs.items()}
    buffers, guarded = list(call_run.buffers.values()), call_run.allocations.guarded
    flags = [buffer.is_suspect() for buffer in buffers] + [allocation.is_suspect() for allocation in guarded]
    suspect = iter(read_flags(flags + [may_hold_poison(output) for output in stored.values()]))
    writes, accesses = [], call_run.session.accesses()
    for buffer in compress(buffers, suspect):
        changed, outside = buffer.inspect()
        accesses += outside
        writes += [] if buffer.name in writable else changed
    names = {output.data_ptr(): name for name, output in outputs.items()}
    for allocation in compress(guarded, suspect):
        accesses += allocation.outside_writes(names)
    unwritten = {name: index for name in compress(stored, suspect) if (index := find_poison(stored[name])) is not None}
    storages = {buffer.device_base.untyped_storage().data_ptr(): buffer.name for buffer in call_run.buffers.values()}
    aliases = [
        (name, storages[output.untyped_storage().data_ptr()])
        for name, output in outputs.items()
        if output.numel() and output.untyped_storage().data_ptr() in storages
    ]
    if target.differentiable:  # A gradient may be the cotangent itself, as that of torch's addition is.
        gradients_of = [f"d{name}" for name in call_run.buffers]
        aliases = [pair for pair in aliases if not (pair[0] in gradients_of and pair[1].startswith("grad "))]
    return CallResult(
        outputs={name: output.clone().expand(outputs[name].shape) for name, output in stored.items()},
        accesses=tuple(accesses),
        writes=tuple(writes),
        unwritten=unwritten,
        aliases=tuple(pair for pair in aliases if pair[1] not in writable),
        kernels=tuple(call_run.session.kernels()),
        counted=call_run.session.read_counters(),
    )


def check_outputs(target: Target, outputs: Any) -> Mapping[str, torch.Tensor]:
    """The launcher's outputs, as a plain dict of plain tensors. TargetError where they are not tensors by name."""
    if not isinstance(outputs, Mapping) or not outputs:
        returned = "an empty dict" if isinstance(outputs, Mapping) else type(outputs).__name__
        hint = "; what in_place= names is returned as well" * bool(target.in_place)
        raise TargetError(f"target {target.name!r}: the launcher returns {returned}, not a dict of tensors{hint}")
    plain = {}
    for name, value in outputs.items():
        if not isinstance(name, str):
            raise TargetError(f"target {target.name!r}: an output's name is {type(name).__name__}, not str")
        output = _without_subclass(value) if isinstance(value, torch.Tensor) else value
        if not isinstance(output, torch.Tensor) or output.dtype not in DTYPE_NAMES:
            kind = output.dtype if isinstance(output, torch.Tensor) else type(output).__name__
            raise TargetError(f"target {target.name!r}: output {name!r} is {kind}, not a tensor of a known dtype")
        plain[str.__str__(name)] = output
    return plain


def _without_subclass(value: torch.Tensor) -> torch.Tensor:
    """The tensor whose memory and graph this one has, without a class that may compute other values than are in memory.

    One that has no memory of its own stays what it is.
    """
    if type(value) is torch.Tensor or type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(value, torch.Tensor)


def outcome_of_error(error: BaseException, backend: Backend) -> Outcome:
    """The outcome of a call that raised an error.

    Raises FatalError where the process cannot go on, UsageError where the error is not the launcher's.
    """
    cause = error if backend.is_fatal(error) else find_late_error(backend) or error
    outcome = _inspect_failure(cause, backend)
    if backend.is_fatal(cause):
        raise FatalError(outcome) from cause
    return outcome


def find_late_error(backend: Backend) -> Exception | None:
    """What a call's launches did wrong before it raised something else: a device says so late, to whoever asks next."""
    try:
        backend.synchronize()
    except Exception as error:
        return error
    return None


def _placing_outcome(error: Exception, backend: Backend) -> Outcome | None:
    """Too large inputs are refused; what else torch says of a device before a launcher is called may well not be said
    again. None where neither fails."""
    if lacking := describe_shortage(error, backend):
        return NotRun(lacking)
    is_too_large = isinstance(error, ValueError) and any(text in str(error) for text in TOO_LARGE)
    if is_too_large or is_out_of_memory(error) or isinstance(error, OSError):
        return Rejected(f"the inputs do not fit into memory here: {one_line(error)}")
    if backend.is_accelerator and isinstance(error, RuntimeError):
        return NotRun(f"the inputs cannot be put into memory: {one_line(error)}")
    return None


def _inspect_failure(error: BaseException, backend: Backend) -> Outcome:
    try:
        return _failure_outcome(error, backend)
    except UsageError:
        raise
    except Exception as failure:
        return Raised(clean_text(f"{type(error).__name__}, which cannot be examined: {type(failure).__name__}"))


def _failure_outcome(error: BaseException, backend: Backend) -> Outcome:
    if lacking := describe_shortage(error, backend):
        return NotRun(lacking)
    if is_out_of_memory(error):
        return OutOfMemory(one_line(error))
    kind = type(error).__name__
    if kind == "UnsupportedOperation":
        raise TargetError(f"kernel not supported by this backend: {one_line(error)}") from None
    if kind in ("NoCompiler", "CompilerFailed"):
        raise BackendError(one_line(error)) from None
    if kind == "CompilerTimeout":
        return NotRun(f"this machine is too slow: {one_line(error)}")
    named = kind in ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError")
    if named or _raised_by_compiler(error):
        return CompileError(one_line(error))
    if SHARED_ELEMENTS in one_line(error) or isinstance(error, REFUSALS) and not _raised_by_triton(error):
        return Rejected(one_line(error))
    return Raised(one_line(error), find_raising_line(error))


def find_raising_line(error: BaseException) -> str:
    """file:line of the innermost frame that is neither Triton's, torch's nor of this package; empty without one."""
    frames = [
        f"{portable_path(frame.f_code.co_filename)}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("fuzz", "torch", "triton")
    ]
    return frames[-1] if frames else ""


def _raised_by_compiler(error: BaseException) -> bool:
    """Whether Triton's compiler ended in an error, such as "PassManager::run failed", whatever its type is."""
    codes = [(frame.f_globals.get("__name__"), frame.f_code.co_name) for frame, _ in walk_tb(error.__traceback__)]
    return ("triton.compiler.compiler", "compile") in codes


def _raised_by_triton(error: BaseException) -> bool:
    """Whether Triton or this package raised the error, rather than the launcher or code that it calls."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    module = frame.tb_frame.f_globals.get("__name__", "") if frame is not None else ""
    return module.partition(".")[0] in ("fuzz", "triton")
