"""accuracy: outputs and gradients lie inside the envelope of the float64 reference.

An element disagrees when |out - ref| > SAFETY * envelope + half a unit in the last place of the output's dtype + the
smallest subnormal that the backend keeps. The envelope's members are evaluated in stages: a few of them, and only for
what those do not clear, more; their spread only grows, so what a few clear is cleared by all. Among a million elements
the spread of eight members is small by chance somewhere, so that what exceeds the bound narrowly is asked once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.backends.memory import NAMES
from fuzz.case import Argument, Case
from fuzz.dims import resolve
from fuzz.dtypes import DType, ulp
from fuzz.dtypes import dtype as named_dtype
from fuzz.entry import Entry
from fuzz.errors import TargetError, UsageError, one_line
from fuzz.finding import Element, Finding
from fuzz.oracles.base import SHOWN, Examination, element
from fuzz.outcome import Rejected, Returned
from fuzz.reference import Expected, Precision, evaluate, evaluate_backward
from fuzz.target import Target
from fuzz.values.torch_values import from_words

SAFETY = 4.0
STAGES = (2, 20, 80)
"""Members of the envelope, stage by stage."""
NARROW, NARROW_LARGE = 64.0, 4.0
"""Error over bound below which the last stage is worth its time, for small and large cases; only mistakes exceed it."""
LARGE = 1 << 12
"""Elements of a call from which it counts as large."""
SYMPTOMS = ("nonfinite", "sign", "value")


@dataclass(frozen=True)
class Judgement:
    """Element by element: which symptom (0 none, else 1 + its index in SYMPTOMS), the bound, and error over bound."""

    symptom: torch.Tensor
    bound: torch.Tensor
    ratio: torch.Tensor

    @property
    def worst(self) -> float:
        return float(self.ratio.max()) if self.ratio.numel() else 0.0


class Accuracy:
    name = "accuracy"
    always = True

    def applies(self, target: Target, case: Case) -> bool:
        return target.reference is not None

    def examine(self, exam: Examination) -> Finding | None:
        for index in range(len(exam.case.calls)):
            found = self._examine_call(exam, index)
            if found:
                return found
        return None

    def _examine_call(self, exam: Examination, index: int) -> Finding | None:
        worst = 0.0
        narrow = NARROW if exam.case.calls[index].elements() < LARGE else NARROW_LARGE
        for members in STAGES:
            if members == STAGES[-1] and worst > narrow:
                break
            expected = expect(exam, index, members)
            outputs = exam.returned.calls[index].outputs
            check_shapes(exam.target, outputs, expected)
            judged = {name: judge(outputs[name], expected[name], exam.precision) for name in expected}
            if not any(bool(one.symptom.any()) for one in judged.values()):
                exam.worst = max([exam.worst, *(one.worst for one in judged.values())])
                return None
            worst = max(one.worst for one in judged.values())
        return _finding(outputs, expected, judged, index)


def expect(exam: Examination, index: int, members: int) -> Mapping[str, Expected]:
    """The reference's outputs for one call with the envelope of so many members. TargetError where it fails.

    The first stage is the screen of every case: it leaves out what can only widen the envelope.
    """
    call, target = exam.case.calls[index], exam.target
    assert target.reference is not None
    inputs, cotangents = reference_inputs(exam, index)
    thorough = members > STAGES[0]
    try:
        if target.differentiable:
            wrt = [name for name in call.arguments if call.arguments[name].is_float]
            return evaluate_backward(
                target.reference, inputs, cotangents, wrt, exam.precision,
                members=members, uncertainty=thorough, check_range=thorough,
            )  # fmt: skip
        return evaluate(
            target.reference, inputs, exam.precision, members=members, uncertainty=thorough, check_range=thorough
        )
    except UsageError:
        raise
    except Exception as error:
        raise TargetError(
            f"target {target.name!r}: its reference fails at {dict(call.dims)}: {one_line(error)}"
        ) from error


def reference_inputs(
    exam: Examination, index: int
) -> tuple[dict[str, torch.Tensor | float | int | bool | str], dict[str, torch.Tensor]]:
    """What the reference is called with: contiguous tensors of the case's values, options, sizes; and cotangents."""
    call = exam.case.calls[index]
    tensors = {name: plain_tensor(value, call.dims) for name, value in call.tensors.items()}
    inputs: dict[str, torch.Tensor | float | int | bool | str] = {name: tensors[name] for name in call.arguments}
    inputs.update(call.options)
    inputs.update({name: call.dims[name] for name in exam.target.passed_sizes})
    return inputs, {name: tensors[f"grad {name}"] for name in call.cotangents}


def check_shapes(target: Target, outputs: Mapping[str, torch.Tensor], expected: Mapping[str, Expected]) -> None:
    """TargetError where launcher and reference do not return the same outputs, shapes and kinds."""
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


def judge(output: torch.Tensor, expected: Expected, precision: Precision) -> Judgement:
    """Compares one output with its reference, element by element; the rules are those of the module's docstring."""
    value = expected.value
    out = output.to(value.device)
    if not out.is_floating_point():
        wrong = (out != value) & (expected.spread == 0)
        return Judgement(wrong * 3, torch.zeros_like(expected.spread), torch.where(wrong, torch.inf, 0.0))
    kind = named_dtype(NAMES[output.dtype])
    out = out.double()
    slack, bound = allowed(expected, kind, precision)
    error = (out - value).abs()
    if bool((error <= bound).all()):
        ratio = torch.where(torch.isfinite(bound), error / bound, 0.0)
        return Judgement(torch.zeros(bound.shape, dtype=torch.int8), bound, ratio)
    unbounded = ~torch.isfinite(bound) & torch.isfinite(value)
    nonfinite = _nonfinite(out, value, slack, kind)
    over = (error > bound) & torch.isfinite(out) & torch.isfinite(value)
    sign = over & (value.abs() > bound) & (out * value < 0)
    symptom = torch.where(nonfinite, 1, torch.where(sign, 2, torch.where(over, 3, 0)))
    symptom = torch.where(unbounded, 0, symptom)
    ratio = torch.nan_to_num(error / bound, nan=0.0, posinf=0.0)
    return Judgement(symptom, bound, torch.where(nonfinite & ~unbounded, torch.inf, ratio))


def allowed(expected: Expected, kind: DType, precision: Precision) -> tuple[torch.Tensor, torch.Tensor]:
    """(slack, bound): what the envelope allows, and with it half a unit of the output's format and its underflow."""
    slack = SAFETY * expected.spread
    if expected.uncertainty is not None:
        slack = slack + SAFETY * expected.uncertainty
    unit = half_ulp(expected.value.abs() + slack, kind)
    return slack, slack + unit + max(precision.eta, kind.smallest_subnormal)


def _nonfinite(out: torch.Tensor, value: torch.Tensor, slack: torch.Tensor, kind: DType) -> torch.Tensor:
    """Where exactly one side is finite: overflow is judged by whether the exact value, rounded, may overflow."""
    limit = overflow_threshold(kind)
    may_overflow = value.abs() + slack >= limit
    must_overflow = (value.abs() - slack >= limit) & torch.isfinite(value)
    right_side = (torch.sign(out) == torch.sign(value)) | (value.abs() <= slack)
    allowed_inf = torch.isinf(out) & may_overflow & right_side
    unexpected = ~torch.isfinite(out) & torch.isfinite(value) & ~allowed_inf
    missing = torch.isfinite(out) & (must_overflow | ~torch.isfinite(value))
    other_inf = torch.isinf(out) & torch.isinf(value) & (torch.sign(out) != torch.sign(value))
    return unexpected | missing | other_inf


@lru_cache
def overflow_threshold(kind: DType) -> float:
    """The least magnitude that rounds to infinity: half a unit in the last place beyond the largest finite value."""
    return kind.largest + float(ulp(kind.largest, kind)) / 2


def half_ulp(magnitude: torch.Tensor, kind: DType) -> torch.Tensor:
    """Half a unit in the last place of the format at these magnitudes (float64, not negative)."""
    least = 1 - kind.bias
    exponent = torch.clamp(torch.frexp(magnitude)[1] - 1, least, kind.bias)
    return torch.ldexp(torch.ones_like(magnitude), exponent - kind.mantissa - 1)


def _finding(
    outputs: Mapping[str, torch.Tensor], expected: Mapping[str, Expected], judged: Mapping[str, Judgement], index: int
) -> Finding:
    wrong = {name: one for name, one in judged.items() if bool(one.symptom.any())}
    symptom = SYMPTOMS[min(int(one.symptom[one.symptom > 0].min()) for one in wrong.values()) - 1]
    elements = tuple(
        found for name, one in wrong.items() for found in _elements(name, outputs[name], expected[name], one)
    )
    count = sum(int((one.symptom > 0).sum()) for one in wrong.values())
    total = sum(one.symptom.numel() for one in judged.values())
    worst = max(one.worst for one in wrong.values())
    first = elements[0]
    message = f"{'+'.join(wrong)}: {count} of {total} elements wrong; {first.output}{list(first.index)} is "
    message += f"{first.got}, should be {first.want}"
    return Finding(
        "accuracy", tuple(wrong), symptom, message, elements[:SHOWN], index, worst, disagreeing=count, compared=total
    )


def _elements(name: str, output: torch.Tensor, expected: Expected, judged: Judgement) -> list[Element]:
    """The worst elements of one output."""
    ratio = torch.where(judged.symptom > 0, judged.ratio, -1.0).reshape(-1)
    kind = named_dtype(NAMES[output.dtype])
    found = []
    for place in ratio.topk(min(SHOWN, int((judged.symptom > 0).sum()))).indices.tolist():
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), output.shape))
        want = expected.value[index]
        if not output.is_floating_point():
            found.append(element(name, index, output, str(want.item())))
            continue
        distance = (output[index].double().to(want.device) - want).abs() / (2 * half_ulp(want.abs(), kind))
        told = dict(bound=f"{float(judged.bound[index]):.3g}", ulps=f"{float(distance):.3g}")
        found.append(element(name, index, output, repr(float(want)), **told))
    return found



def plain_tensor(value: Argument, dims: Mapping[str, int]) -> torch.Tensor:
    """The argument's values as a tensor on the host; expanded dims have stride 0."""
    words = from_words(value.words(dims), named_dtype(value.dtype))
    return words.expand(resolve(value.shape, dims))


def expected_values(target: Target, entry: Entry) -> dict[str, object]:
    """For a script: (values, bounds) of each output's elements for the call that shows an accuracy finding.

    Other oracles need no reference: then the answer is empty.
    """
    if target.reference is None or entry.finding is None or entry.finding.oracle != "accuracy":
        return {}
    backend = BACKENDS[entry.seen.get("backend", "cpu")]
    exam = Examination(target, target.launcher, entry.case, backend, Rejected("not run"))
    found: dict[str, object] = {}
    for name, expected in expect(exam, entry.finding.call, STAGES[-1]).items():
        dtype = named_dtype(output_dtype(exam, entry.finding.call, name))
        bound = allowed(expected, dtype, exam.precision)[1]
        found[name] = [[repr(v) for v in part.reshape(-1).tolist()] for part in (expected.value.double(), bound)]
    return found


def output_dtype(exam: Examination, call: int, output: str) -> str:
    """The dtype that the launcher gives an output: the one that the finding shows is that of its words."""
    with exam.backend.session(None):
        outputs = run(exam.target, exam.launcher, exam.case.calls[: call + 1], exam.backend)
    assert isinstance(outputs, Returned)
    return NAMES[outputs.calls[call].outputs[output].dtype]
