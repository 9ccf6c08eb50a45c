"""Evaluates the reference for a call, of one case or of replicas of its plan at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from fuzz.backends.autodiff import as_gradient
from fuzz.backends.execute import FatalError, find_late_error
from fuzz.errors import ReferenceFailedError, TargetError, UsageError, one_line
from fuzz.model.case import Argument, Scalar
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import NotRun, Returned
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.execution.examination import Examination, common_stack, stacked_values
from fuzz.reference.envelope import (
    COTANGENT,
    Divergence,
    Expected,
    MemberErrors,
    Precision,
    Reference,
    evaluate,
    evaluate_backward,
    evaluate_members,
    evaluate_orders,
    merge_members,
    with_gradients,
)
from fuzz.target.spec import Target
from fuzz.worker.profile import measured

STAGES = (2, 4, 8, 11, 20, 80)
"""Members of the envelope, stage by stage. Each evaluates those that ones before it did not: see `stage_options`."""
FEW_STEPS = 1
"""The last stage without perturbed inputs, whose members are few."""
STAGES_OF_MANY = tuple(stage for stage in range(len(STAGES)) if stage != FEW_STEPS)
"""Stages of screening and sweeps: what many replicas take are additions, of which one stage more makes more."""
SMALL = 1 << 12
"""A call of fewer elements that is examined alone begins with `FEW_STEPS`: its time are calls, not additions.

The reference of other calls is evaluated where their kernels ran.
"""
HOST = "cpu"
BEFORE_THOROUGH = 2
"""The last stage whose bounds hold no walks of long sums."""
FIRST_THOROUGH = BEFORE_THOROUGH + 1
"""From this stage on members also evaluate what can only widen the envelope: walks, range, and the error of float64.

Walks are what most cases need that come this far, and few members have them.
"""
THOROUGH = 20
"""Members of the stage whose bounds oracles take that ask for one stage only."""
Inputs = dict[str, torch.Tensor | Scalar]


ExpectedOutputs = Mapping[str, Expected]
Evaluated = TypeVar("Evaluated")
MakeTensor = Callable[[str, Argument, Mapping[str, int]], torch.Tensor]


def evaluate_reference(
    exam: Examination, index: int, stage: int, precision: Precision | None = None
) -> ExpectedOutputs:
    """The reference's outputs for one call with the envelope of that stage's members. TargetError where it fails.

    `precision` is that of the target and the backend unless another one is asked about. What is evaluated is kept with
    the examination, and a later stage adds its members to it.
    """
    stages = {} if precision else exam.expected.setdefault(index, {})
    screened = None if precision or index < len(exam.plan.calls) - 1 else exam.screened
    if screened and screened.stage == stage and not stages:
        # Not kept: members that a later stage adds to it are not what that stage evaluates at once.
        return screened.of_replica()
    if not precision:
        # Accuracy asks for these stages in this order, as screening did.
        stages |= {one.stage: one.of_replica() for one in exam.uncleared.pop(index, ())}
    if stage not in stages:
        before = max((one for one in stages if one < stage), default=None)
        known = None if before is None else (before, stages[before])
        stages[stage] = _evaluate_alone(exam, index, stage, known, precision=precision)
    return stages[stage]


def evaluate_without_walks(exam: Examination, index: int, stage: int) -> ExpectedOutputs:
    """The same with the members of a stage, of which none adds up the terms of sums."""
    return _evaluate_alone(exam, index, stage, None, walks=False)


def _evaluate_alone(
    exam: Examination,
    index: int,
    stage: int,
    known: tuple[int, ExpectedOutputs] | None,
    precision: Precision | None = None,
    walks: bool = True,
) -> ExpectedOutputs:
    def evaluate_on(device: str) -> ExpectedOutputs:
        inputs, cotangents = reference_inputs(exam, index, device)
        return _evaluate(exam, index, inputs, cotangents, stage, known, precision=precision, walks=walks)

    return beside_kernels(exam, index, evaluate_on)


def evaluate_order_errors(exam: Examination, index: int) -> Mapping[str, torch.Tensor]:
    """By output how far off each order of all sums in float32 is, (orders, *shape), where the reference runs."""
    return beside_kernels(
        exam, index, lambda device: evaluate_orders(*whole_reference(exam, index, device), exam.precision)
    )


def evaluate_member_errors(exam: Examination, index: int, stage: int) -> Mapping[str, MemberErrors]:
    """By output how far off each member of a stage is, none of which adds up the terms of sums."""
    members = STAGES[stage]
    return beside_kernels(
        exam, index, lambda device: evaluate_members(*whole_reference(exam, index, device), exam.precision, members)
    )


def beside_kernels(exam: Examination, index: int, evaluate_on: Callable[[str], Evaluated]) -> Evaluated:
    """What is evaluated of a call's reference: where its kernels ran if the call is large, or else on the host.

    So is what cannot be evaluated there: a reference may make tensors on the host, and a device may lack memory.
    Raises FatalError where that leaves a device on which nothing can be computed any more: of the kernel nothing is
    known then.
    """
    call, device = exam.plan.calls[index], exam.backend.device
    if device != HOST and call.elements() >= SMALL and isinstance(exam.outcome, Returned) and is_safe(exam, index):
        try:
            return evaluate_on(device)
        except (ReferenceFailedError, RuntimeError) as error:
            late = find_late_error(exam.backend)
            if late is not None and exam.backend.is_fatal(late):
                # What the kernels did was awaited before. The host can evaluate it, but their outputs are lost.
                why = f"its reference cannot be evaluated on the device: {one_line(error)}"
                raise FatalError(NotRun(why)) from error
    return evaluate_on(HOST)


def is_safe(exam: Examination, index: int) -> bool:
    """Whether evaluating a call's reference does no harm to a device: an index out of range would, on the host it
    raises. Without integers there is mostly no such index, nor where a part has been evaluated.
    """
    evaluated = exam.cleared or bool(exam.expected.get(index) or exam.uncleared.get(index))
    return evaluated or all(value.is_float for value in exam.plan.calls[index].tensors.values())


def whole_reference(
    exam: Examination, index: int, device: str = HOST
) -> tuple[Reference, dict[str, torch.Tensor | Scalar]]:
    """The reference of a call with the gradients that the target has, and the inputs of both."""
    target = exam.target
    assert target.reference is not None
    inputs, cotangents = reference_inputs(exam, index, device)
    if not target.differentiable:
        return target.reference, inputs
    wrt = [name for name, value in exam.plan.calls[index].arguments.items() if value.is_float]
    joint = with_gradients(target.reference, tuple(cotangents), wrt)
    return joint, {**inputs, **{COTANGENT + n: t for n, t in cotangents.items()}}


def evaluate_stacked_reference(
    exams: Sequence[Examination], index: int, stage: int, known: tuple[int, ExpectedOutputs] | None
) -> ExpectedOutputs:
    """The same for replicas of a plan, their first dim everywhere. `known` is an earlier stage and what it gave.

    Diverges as `evaluate` does, and where the reference fails: whether it does so for a replica alone, that one tells.
    """
    inputs, cotangents = replica_inputs(exams, index)
    try:
        return _evaluate(exams[0], index, inputs, cotangents, stage, known, len(exams))
    except TargetError as error:
        raise Divergence from error


def stage_options(stage: int, before: int | None) -> dict[str, Any]:
    """How `evaluate` is to evaluate the members of a stage that the stage `before` it, if any, did not.

    How far what is rounded to integers may be off, and which of two close values is the larger one, depends on all
    members of a stack: so the stage after `FEW_STEPS` evaluates two of its members again, beside others, and the last
    ones evaluate all of theirs.
    """
    after = 0 if before is None or stage > FIRST_THOROUGH else STAGES[0 if before == FEW_STEPS else before]
    members = STAGES[stage]
    thorough = stage >= FIRST_THOROUGH
    measured = before is not None and before >= FIRST_THOROUGH
    return dict(members=members, after=after, uncertainty=thorough and not measured, check_range=thorough)


@measured("reference")
def _evaluate(
    exam: Examination,
    index: int,
    inputs: Inputs,
    cotangents: dict[str, torch.Tensor],
    stage: int,
    known: tuple[int, ExpectedOutputs] | None,
    replicas: int | None = None,
    precision: Precision | None = None,
    walks: bool = True,
) -> ExpectedOutputs:
    call, target = exam.plan.calls[index], exam.target
    assert target.reference is not None
    precision = precision or exam.precision
    how = stage_options(stage, known[0] if known else None) | dict(replicas=replicas, walks=walks)
    try:
        if target.differentiable:
            wrt = [name for name in call.arguments if call.arguments[name].is_float]
            found = evaluate_backward(target.reference, inputs, cotangents, wrt, precision, **how)
        else:
            found = evaluate(target.reference, inputs, precision, **how)
        found = beside_inputs(found, (*inputs.values(), *cotangents.values()))
        return merge_members(known[1] if known else {}, of_kernel(exam, index, found))
    except UsageError:
        raise
    except Exception as error:
        raise ReferenceFailedError(
            f"target {target.name!r}: its reference fails at {dict(call.dims)}: {one_line(error)}"
        ) from error


def beside_inputs(expected: dict[str, Expected], inputs: Iterable[object]) -> dict[str, Expected]:
    """All outputs on the device of the inputs: a reference may make some on the host, whatever these are on."""
    device = next((one.device for one in inputs if isinstance(one, torch.Tensor)), torch.device(HOST))
    return {name: one.to(device) for name, one in expected.items()}


def of_kernel(exam: Examination, index: int, expected: dict[str, Expected]) -> dict[str, Expected]:
    """Without gradients that the kernel leaves out, which are for the autograd oracle."""
    if not exam.target.differentiable or not isinstance(exam.outcome, Returned):
        return expected
    outputs, gradients = exam.returned.calls[index].outputs, {f"d{name}" for name in exam.target.tensors}
    return {name: one for name, one in expected.items() if name in outputs or name not in gradients}


def replica_inputs(exams: Sequence[Examination], index: int) -> tuple[Inputs, dict[str, torch.Tensor]]:
    """`reference_inputs` of replicas, each tensor with them as first dim."""
    if common_stack(exams):
        stored = stacked_values(exams)
        return _inputs(exams[0], index, lambda name, value, dims: _unstore(stored[name], value, dims))
    parts = [reference_inputs(exam, index) for exam in exams]
    inputs, cotangents = parts[0]
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            inputs[name] = torch.stack([value, *(part[0][name] for part in parts[1:])])  # type: ignore[list-item]
    return inputs, {name: torch.stack([part[1][name] for part in parts]) for name in cotangents}


def reference_inputs(exam: Examination, index: int, device: str = HOST) -> tuple[Inputs, dict[str, torch.Tensor]]:
    """What the reference is called with: contiguous tensors of the case's values, options, sizes; and cotangents."""
    return _inputs(exam, index, lambda name, value, dims: plain_tensor(value, dims, device))


def _inputs(exam: Examination, index: int, make_tensor: MakeTensor) -> tuple[Inputs, dict[str, torch.Tensor]]:
    call = exam.case.calls[index]
    tensors = {name: make_tensor(name, value, call.dims) for name, value in call.tensors.items()}
    inputs: Inputs = {name: tensors[name] for name in call.arguments}
    inputs.update(exam.target.scalars(call))
    return inputs, {name: round_cotangent(exam, index, name, tensors[f"grad {name}"]) for name in call.cotangents}


def round_cotangent(exam: Examination, index: int, output: str, cotangent: torch.Tensor) -> torch.Tensor:
    """What a backward gets of a cotangent; whole numbers have no backward."""
    outputs = exam.returned.calls[index].outputs if isinstance(exam.outcome, Returned) else {}
    is_used = output in outputs and outputs[output].is_floating_point()
    return as_gradient(cotangent, outputs[output]) if is_used else cotangent


def _unstore(values: torch.Tensor, value: Argument, dims: Mapping[str, int]) -> torch.Tensor:
    """An argument of replicas from its stored values; expanded dims have stride 0."""
    return values.expand(len(values), *resolve(value.shape, dims))


def check_alike(target: Target, outputs: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> None:
    """TargetError where launcher and baseline do not return the same outputs, shapes and dtypes."""
    parts = ({name: (tuple(t.shape), t.dtype) for name, t in found.items()} for found in (outputs, others))
    mine, theirs = parts
    if mine != theirs:
        raise TargetError(f"target {target.name!r}: the launcher returns {mine}; the baseline returns {theirs}")


def check_shapes(target: Target, outputs: Mapping[str, torch.Tensor], expected: Mapping[str, Expected]) -> None:
    """TargetError where launcher and reference do not return the same outputs, shapes and kinds. Or both stacked."""
    where = f"target {target.name!r}"
    if set(outputs) != set(expected):
        returned, wanted = ", ".join(sorted(outputs)), ", ".join(sorted(expected))
        raise TargetError(f"{where}: the launcher returns {returned}; the reference returns {wanted}")
    for name, output in outputs.items():
        value = expected[name].value
        if tuple(value.shape) != tuple(output.shape):
            shapes = f"{tuple(output.shape)}, the reference's {tuple(value.shape)}"
            raise TargetError(f"{where}: the launcher's output {name!r} has shape {shapes}")
        if output.is_floating_point() and value.dtype is not torch.float64:
            raise TargetError(f"{where}: the reference returns {name!r} as {value.dtype}, where torch.float64 is due")


def plain_tensor(value: Argument, dims: Mapping[str, int], device: str = HOST) -> torch.Tensor:
    """The argument's values as a tensor, on the host unless a device is given; expanded dims have stride 0."""
    words = from_bits(value.bits(dims), named_dtype(value.dtype), device)
    return words.expand(resolve(value.shape, dims))
