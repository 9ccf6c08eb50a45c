"""Checks that outputs and gradients lie inside the envelope of the float64 reference.

The envelope's members are evaluated in stages: a few of them first, and more only where something disagrees. Their
spread only grows, so that what agrees with a few members agrees with all. Among a million elements the spread of eight
members is small by chance somewhere; what exceeds its bound narrowly is therefore compared once more, with all members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from fuzz.backends.execute import run
from fuzz.backends.guarded_memory import DTYPE_NAMES, read_words
from fuzz.errors import TargetError, Unadjudicated, UsageError
from fuzz.model import oracle_specs
from fuzz.model.case import Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import Returned, describe
from fuzz.oracles.base import CaseOracle, name_promise
from fuzz.oracles.comparison.adjudicate import LAST, evaluate_exact_outputs, find_reference_faults, reference_finding
from fuzz.oracles.comparison.bits import MAX_ELEMENTS, compare_bits, make_element, spell_word
from fuzz.oracles.comparison.eager import compare_eager
from fuzz.oracles.comparison.elements import (
    SYMPTOMS,
    ElementComparison,
    compare_elements,
    half_ulp,
    largest_error,
    largest_wrong,
    shared_patterns,
    symptoms_by_cause,
)
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    FEW_STEPS,
    FIRST_THOROUGH,
    SMALL,
    STAGES,
    check_alike,
    check_shapes,
    evaluate_reference,
)
from fuzz.oracles.comparison.long_sums import find_wrong_together, may_be_wrong_together
from fuzz.oracles.comparison.reference_error import suspect_reference
from fuzz.oracles.diagnosis import diagnose, make_context
from fuzz.oracles.diagnosis.input_precision import describe_input_precision
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import COMPARE_WITH_REFERENCE, SavedFinding, ScriptCheck, compare_two_runs
from fuzz.reference.envelope import Expected
from fuzz.target.spec import Target
from fuzz.worker.protocol import CompareEager

NARROW, NARROW_LARGE = 64.0, 4.0
"""Error over bound below which the last stage is worth its time, for small and large cases; only mistakes exceed it.

Nor is a stage of few members worth it beyond the former.
"""
FEW_ELEMENTS = 8
"""Elements that may each lie beside an edge where a derivative jumps: the last stage finds its other side as well."""
EXACT_SECONDS, EXACT_ELEMENTS = 2.0, 1 << 10
"""What exact values of a case that agrees may cost, and the elements of the largest call that they are evaluated of."""
LARGE = 1 << 12
"""Elements of a call from which it counts as large."""
RUN_BASELINE = '''
def run_twice():
    """The launcher's outputs and those of the baseline."""
    return run_call(), run_call(launcher=BASELINE)
'''


class AccuracyOracle(CaseOracle):
    spec = oracle_specs.ACCURACY

    def applies(self, target: Target, case: Case) -> bool:
        return target.reference is not None or target.baseline is not None

    def check_case(self, exam: Examination) -> Finding | None:
        if exam.target.contract.kind == "bitwise":
            return self._compare_with_baseline(exam)
        for index in range(0 if exam.cleared else len(exam.case.calls)):
            finding = check_call(exam, index)
            if finding:
                return finding
        return None

    def diagnose(self, exam: Examination, least: Examination) -> tuple[str, ...]:
        context = make_context(exam)
        hint = describe_input_precision(exam, least)
        return (*diagnose(context, context if least is exam else make_context(least)), *([hint] if hint else []))

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.symptom != "bits":
            return ScriptCheck(COMPARE_WITH_REFERENCE, values=True)
        if saved.target.baseline is None:
            raise UsageError(f"no script can be made: {saved.target.name} has no baseline whose bits it promises")
        return replace(compare_two_runs(saved.finding, RUN_BASELINE), functions={"BASELINE": saved.target.baseline})

    def _compare_with_baseline(self, exam: Examination) -> Finding | None:
        """The outputs of the first call that differ from those of the baseline for the same case."""
        assert exam.target.baseline is not None
        outcome = run(exam.target, exam.target.baseline, exam.case.calls, exam.backend)
        if not isinstance(outcome, Returned):
            raise TargetError(f"target {exam.target.name!r}: its baseline does not return: {describe(outcome)}")
        for index, calls in enumerate(zip(exam.returned.calls, outcome.calls, strict=True)):
            mine, other = (call.outputs for call in calls)
            check_alike(exam.target, mine, other)
            finding = compare_bits(
                self.name, "than those of the baseline", {name: (mine[name], other[name]) for name in mine}
            )
            if finding:
                return name_promise(replace(finding, call=index), exam.target, "contract")
        return None


def check_call(exam: Examination, index: int) -> Finding | None:
    """Compares one call's outputs with the reference, stage by stage of the envelope."""
    worst, wrong = 0.0, 0
    together = False
    outputs = exam.returned.calls[index].outputs
    expected = None
    begins_with_few = exam.case.calls[index].elements() < SMALL and not exam.uncleared.get(index)
    skipped = 0 if begins_with_few else FEW_STEPS
    for stage in range(len(STAGES)):
        if stage == skipped or stage == FIRST_THOROUGH and worst > NARROW:
            continue
        if stage == LAST and wrong > FEW_ELEMENTS and worst > narrowly(exam.case.calls[index]):
            break
        expected = evaluate_reference(exam, index, stage)
        check_shapes(exam.target, outputs, expected)
        precision, contract = exam.precision, exam.target.contract
        compared = {name: compare_elements(outputs[name], one, precision, contract) for name, one in expected.items()}
        worst = max((one.worst for one in compared.values()), default=0.0)
        if not any(one.wrong for one in compared.values()):
            if together and (finding := find_together(exam, index)):
                return finding
            exam.worst = max(exam.worst, worst)
            if not any(one.may_be_suspect for one in compared.values()):
                return None
            return check_suspect_reference(exam, index, stage, expected)
        if stage == BEFORE_THOROUGH:
            together = may_be_wrong_together(outputs, expected, compared)
        wrong = sum(int((one.symptom > 0).sum()) for one in compared.values())
    assert expected is not None
    finding = make_finding(outputs, expected, compared, index)
    if is_as_good_as_torch(exam, finding):
        return None
    return name_promise(finding, exam.target, "contract") if contract.kind == "ulps" else finding


def narrowly(call: Call) -> float:
    """Error over bound below which the last stage is worth its time for a call."""
    return NARROW if call.elements() < LARGE else NARROW_LARGE


def find_together(exam: Examination, index: int) -> Finding | None:
    """The finding that elements of an output are wrong together, by bounds that hold no walks of long sums."""
    outputs = exam.returned.calls[index].outputs
    found = find_wrong_together(exam, index, outputs)
    if not found:
        return None
    expected, compared = {n: one.expected for n, one in found.items()}, {n: one.compared for n, one in found.items()}
    finding = make_finding(outputs, expected, compared, index)
    name, wrong = next(iter(found.items()))
    message = (
        f"{'+'.join(found)}: {finding.disagreeing} of {finding.compared} elements wrong, alone by no more than a long "
        f"sum may be, {wrong.describe(name)}; {finding.message.rpartition('; ')[2]}"
    )
    return replace(finding, message=message, ratio=wrong.ratio)


def is_as_good_as_torch(exam: Examination, finding: Finding) -> bool:
    """Whether the target promises no more than eager PyTorch gives, which is wrong in the same way."""
    if not exam.target.as_good_as:
        return False
    eager = compare_eager(exam, CompareEager(exam.case, finding.call, finding.outputs))
    return eager is not None and eager.shares(finding)


def check_suspect_reference(
    exam: Examination, index: int, stage: int, expected: Mapping[str, Expected]
) -> Finding | None:
    """The finding that the reference is wrong, where it is suspect and the exact value says so."""
    outputs = exam.returned.calls[index].outputs

    def is_suspect() -> bool:
        return any(bool(suspect_reference(outputs[name], one, exam.precision).any()) for name, one in expected.items())

    while is_suspect():
        if all(one.uncertainty is not None for one in expected.values()):
            return compare_with_exact_values(exam, index, expected)
        stage += 1
        expected = evaluate_reference(exam, index, stage)
    return None


def compare_with_exact_values(exam: Examination, index: int, expected: Mapping[str, Expected]) -> Finding | None:
    """The finding that the reference is wrong, None where exact values do not say so within a short time."""
    try:
        exact = evaluate_exact_outputs(exam, index, EXACT_SECONDS, EXACT_ELEMENTS, quick=True)
    except Unadjudicated:
        return None
    wrong = find_reference_faults(exam, index, expected, exact, EXACT_SECONDS)
    if not any(bool(mask.any()) for mask in wrong.values()):
        return None
    return reference_finding(exam, index, wrong, expected, exact)


def make_finding(
    outputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    compared: Mapping[str, ElementComparison],
    call: int,
) -> Finding:
    """The finding of what disagrees in one call, with its worst elements."""
    wrong = {name: one for name, one in compared.items() if one.wrong}
    symptom = min((one.first_symptom for one in wrong.values()), key=SYMPTOMS.index)
    by_symptom = sorted(wrong.items(), key=lambda item: SYMPTOMS.index(item[1].first_symptom))
    elements: list[Element] = []
    for name, one in by_symptom:
        if len(elements) == MAX_ELEMENTS:
            break
        elements += worst_elements(name, outputs[name], expected[name], one, MAX_ELEMENTS - len(elements))
    count = sum(int((one.symptom > 0).sum()) for one in wrong.values())
    total = sum(one.symptom.numel() for one in wrong.values())
    first = elements[0]
    message = f"{'+'.join(wrong)}: {count} of {total} elements wrong; {first.output}{list(first.index)} is "
    message += f"{first.got}, should be {describe_due(first.want, outputs[first.output].dtype)}"
    return Finding(
        oracle_specs.ACCURACY.name,
        tuple(wrong),
        symptom,
        message,
        tuple(elements),
        call,
        ratio=max(one.worst for one in wrong.values()),
        disagreeing=count,
        compared=total,
        kinds=tuple(
            (name, kind)
            for name, one in wrong.items()
            for kind in symptoms_by_cause(outputs[name], expected[name], one)
        ),
        error=max(largest_error(outputs[name], expected[name]) for name in wrong),
        largest=tuple((name, largest_wrong(outputs[name], expected[name], one)) for name, one in wrong.items()),
        patterns=frozenset(
            (name, pattern)
            for name, one in wrong.items()
            for pattern in shared_patterns(outputs[name], expected[name], one)
        ),
    )


def describe_due(want: str, dtype: torch.dtype) -> str:
    """The value that is due, and what it is in a dtype of floating numbers where it overflows or underflows."""
    if not dtype.is_floating_point:
        return want
    exact = torch.tensor(float(want), dtype=torch.float64)
    rounded = exact.to(dtype)
    nearest = torch.finfo(dtype).eps / 2 * exact.abs()
    if bool(exact.isnan() | exact.isinf() | ((rounded.double() - exact).abs() <= nearest)):
        return want
    return f"{want}, which is {make_element('', (), rounded, want).got} in {DTYPE_NAMES[dtype]}"


def worst_elements(
    name: str, output: torch.Tensor, expected: Expected, compared: ElementComparison, most: int
) -> list[Element]:
    """At most so many elements of one output, those furthest beyond their bounds."""
    wrong = compared.symptom > 0
    ratio = torch.where(wrong, compared.ratio, -1.0).reshape(-1)
    places = ratio.topk(min(most, int(wrong.sum()))).indices.cpu()
    got, want = output.reshape(-1)[places], expected.value.reshape(-1)[places]
    # torch's own unravel_index imports sympy, half a second of every clean worker.
    indices = [tuple(int(i) for i in np.unravel_index(place, tuple(output.shape))) for place in places.tolist()]
    spelled = [(name, index, int(word), output.dtype) for index, word in zip(indices, read_words(got), strict=True)]
    if not output.is_floating_point():
        return [spell_word(*one, str(int(due))) for one, due in zip(spelled, want.tolist(), strict=True)]
    error = (got.double().to(want.device) - want).abs()
    ulps = error / (2 * half_ulp(want.abs(), named_dtype(DTYPE_NAMES[output.dtype])))
    numbers = zip(want.tolist(), compared.bound.reshape(-1)[places].tolist(), ulps.tolist(), strict=True)
    return [
        spell_word(*one, repr(float(due)), bound=f"{bound:.3g}", ulps=f"{ulp:.3g}")
        for one, (due, bound, ulp) in zip(spelled, numbers, strict=True)
    ]
