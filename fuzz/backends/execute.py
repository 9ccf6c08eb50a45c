"""Execute: one Case on one backend, to an Outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fuzz.backends.allocations import GuardedAllocations
from fuzz.backends.autodiff import Computation, forward, gradients
from fuzz.backends.base import Backend, Session
from fuzz.backends.memory import NAMES, Buffer, place, poisoned
from fuzz.errors import TargetError, UsageError, one_line
from fuzz.model.case import Call
from fuzz.model.outcome import CallResult, CompileError, Outcome, OutOfMemory, Raised, Rejected, Returned
from fuzz.target.spec import Launcher, Target

Words = Mapping[str, np.ndarray]
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
"""What a launcher raises to refuse an input."""


class TooLarge(Exception):
    """The inputs themselves do not fit, which no kernel can help."""


@dataclass
class Fatal(Exception):
    """The process cannot run another kernel; holds the outcome to report before it ends."""

    outcome: Outcome


@dataclass(frozen=True)
class Ran:
    """One call that came back: its tensors in memory, what it returned and allocated, what the backend saw."""

    buffers: Mapping[str, Buffer]
    outputs: Mapping[str, torch.Tensor]
    allocations: GuardedAllocations
    session: Session


def run(
    target: Target,
    launcher: Launcher,
    calls: Sequence[Call],
    backend: Backend,
    order: int | None = None,
    words: Words | None = None,
    computation: Computation | None = None,
    kept: list[Ran] | None = None,
) -> Outcome:
    """Runs the calls in turn. `words` replaces the values of arguments; they have the layout's stored shape.

    `computation` says what is done with the launcher: without it, that it is called, and where the target is an
    autograd function, differentiated. To `kept` is added what is left of each call that came back.
    Raises TargetError for a target that contradicts itself.
    """
    results = []
    try:
        for call in calls:
            ran = launch(target, launcher, call, backend, order, words or {}, computation)
            results.append(observe(target, ran))
            if kept is not None:
                kept.append(ran)
        return Returned(tuple(results))
    except UsageError:
        raise
    except TooLarge as error:
        return Rejected(f"the inputs do not fit into memory here: {error}")
    except Exception as error:
        outcome = _failure(error, backend)
        if backend.fatal(error):
            raise Fatal(outcome) from error
        return outcome


def launch(
    target: Target,
    launcher: Launcher,
    call: Call,
    backend: Backend,
    order: int | None,
    words: Words,
    computation: Computation | None = None,
) -> Ran:
    """One call in guarded, poisoned memory, which nobody has looked at yet."""
    try:
        buffers = {
            name: place(name, value, call.dims, backend.device, words.get(name)) for name, value in call.tensors.items()
        }
    except (torch.OutOfMemoryError, MemoryError, OSError) as error:
        raise TooLarge(one_line(error)) from None
    inputs = {name: buffers[name].tensor for name in call.arguments}
    cotangents = {name: buffers[f"grad {name}"].tensor for name in call.cotangents}
    scalars = {**call.options, **{name: call.dims[dim] for name, dim in target.passed_sizes.items()}}

    def started(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return checked(target, launcher(**tensors, **scalars))

    compute = computation or (gradients if target.differentiable else forward)
    with backend.session(order) as session, GuardedAllocations(session.after) as allocations:
        outputs = compute(started, inputs, cotangents)
        backend.finish()
    return Ran(buffers, outputs, allocations, session)


def observe(target: Target, ran: Ran) -> CallResult:
    """What the call did to memory, beside what it returned."""
    writes, strays = [], []
    for buffer in ran.buffers.values():
        changed, outside = buffer.inspect()
        strays += outside
        writes += [] if buffer.name in target.in_place else changed
    outputs = ran.outputs
    strays += ran.allocations.strays({output.data_ptr(): name for name, output in outputs.items()})
    storages = {buffer.device_base.untyped_storage().data_ptr(): buffer.name for buffer in ran.buffers.values()}
    aliases = [
        (name, storages[output.untyped_storage().data_ptr()])
        for name, output in outputs.items()
        if output.numel() and output.untyped_storage().data_ptr() in storages
    ]
    if target.differentiable:  # A gradient may be the cotangent itself, as that of torch's addition is.
        gradients_of = [f"d{name}" for name in ran.buffers]
        aliases = [pair for pair in aliases if not (pair[0] in gradients_of and pair[1].startswith("grad "))]
    unwritten = {name: place for name, output in outputs.items() if (place := poisoned(output)) is not None}
    return CallResult(
        outputs={name: output.detach().clone() for name, output in outputs.items()},
        accesses=tuple(ran.session.accesses() + strays),
        writes=tuple(writes),
        unwritten=unwritten,
        aliases=tuple(pair for pair in aliases if pair[1] not in target.in_place),
        kernels=tuple(ran.session.kernels()),
        counted=ran.session.counted(),
    )


def checked(target: Target, outputs: Any) -> Mapping[str, torch.Tensor]:
    """The launcher's outputs. TargetError where they are not tensors by name."""
    if not isinstance(outputs, Mapping) or not outputs:
        kind = type(outputs).__name__
        raise TargetError(f"target {target.name!r}: the launcher returns {kind}, not a dict of tensors")
    for name, value in outputs.items():
        if not isinstance(value, torch.Tensor) or value.dtype not in NAMES:
            what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise TargetError(f"target {target.name!r}: output {name!r} is {what}, not a tensor of a known dtype")
    return outputs


def _failure(error: Exception, backend: Backend) -> Outcome:
    crowded = backend.crowded(error)
    if crowded:
        return Rejected(f"no memory is left here: {crowded}")
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return OutOfMemory(one_line(error))
    kind = type(error).__name__
    if kind == "UnsupportedOperation":
        raise TargetError(f"kernel not supported by this backend: {one_line(error)}") from None
    if kind == "NoCompiler":
        raise UsageError(one_line(error)) from None
    if kind in ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"):
        return CompileError(one_line(error))
    if isinstance(error, REFUSALS) and not _from_machinery(error):
        return Rejected(one_line(error))
    return Raised(one_line(error))


def _from_machinery(error: Exception) -> bool:
    """Whether Triton or this package raised the error, not the launcher or what it calls."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    module = frame.tb_frame.f_globals.get("__name__", "") if frame is not None else ""
    return module.partition(".")[0] in ("fuzz", "triton")
