"""Adjudicates accuracy findings: the exact value of the reference says whether the kernel or the reference is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fuzz.errors import Unadjudicated
from fuzz.model.finding import Element, Finding, Verdict
from fuzz.model.oracle_specs import ACCURACY
from fuzz.oracles.comparison.batch_rows import find_rows, outputs_of_rows, select_expected, select_rows
from fuzz.oracles.comparison.bits import MAX_ELEMENTS, make_element
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference, reference_inputs, whole_reference
from fuzz.oracles.comparison.interval_adjudication import adjudicate_by_intervals
from fuzz.oracles.comparison.long_sums import find_wrong_together
from fuzz.oracles.comparison.reference_error import perturb_problem, reference_much_worse, suspect_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import SAFETY, Expected, Precision, Reference
from fuzz.target.contract import ENVELOPE, Contract

if TYPE_CHECKING:
    from fuzz.reference.exact import ExactOutputs

LAST = len(STAGES) - 1
ELEMENTS = 1 << 18
"""Elements of the largest call that is adjudicated."""
LARGE = 1 << 12
"""Elements of a call from which on intervals are tried before exact values, which take longer."""
CERTAIN, FAR = 16.0, 64.0
"""Bound over float64's own error, and error over bound, from which on a finding needs no exact value."""
PERTURBATIONS, CONDITIONING = 2, 4.0
"""How often inputs are perturbed in their last digits, and how many times that change a stable reference may err."""


def adjudicate(exam: Examination, finding: Finding, seconds: float) -> Verdict:
    """The verdict on what the accuracy oracle found in this examination."""
    index = finding.call
    if finding.symptom == "bits":
        return Verdict("unadjudicated", "it was compared with a baseline's bits", finding=finding)
    expected = evaluate_reference(exam, index, LAST)
    together = adjudicate_together(exam, finding, expected, seconds)
    if together is not None:
        return together
    rows = find_rows(exam, index, finding)
    verdict = None if rows is None else adjudicate_rows(exam, finding, expected, rows, seconds)
    if verdict is not None:
        return verdict
    is_large = count_elements(exam, index) > LARGE
    if is_large and (certified := certify(exam, finding, expected, seconds)):
        return certified
    try:
        exact = evaluate_exact_outputs(exam, index, seconds)
    except Unadjudicated as reason:
        if not is_large and (certified := certify(exam, finding, expected, seconds)):
            return certified
        name = "unadjudicated" if is_beyond_doubt(exam, index, expected) else "undecided"
        return Verdict(name, str(reason), finding=finding)
    outputs = exam.returned.calls[index].outputs
    kernel, reference = {}, {}
    for name, output in outputs.items():
        kernel[name], reference[name] = find_faults(
            output, expected[name], exact.values[name], exam.precision, exam.target.contract
        )
    for name, unstable in find_reference_faults(exam, index, expected, exact, seconds).items():
        reference[name] = reference[name] | unstable
    if _any(kernel):
        elements = tuple(add_exact_value(element, exact) for element in finding.elements)
        return Verdict("kernel", "", exact.digits, replace(finding, elements=elements), exact.proof)
    if _any(reference):
        wrong = reference_finding(exam, index, reference, expected, exact)
        return Verdict("reference", "", exact.digits, wrong, exact.proof)
    return Verdict("undecided", "", exact.digits, finding, exact.proof)


def count_elements(exam: Examination, index: int) -> int:
    """Elements of all tensors that a call is given."""
    inputs, _ = reference_inputs(exam, index)
    return sum(x.numel() for x in inputs.values() if isinstance(x, torch.Tensor))


def certify(exam: Examination, finding: Finding, expected: Mapping[str, Expected], seconds: float) -> Verdict | None:
    """The verdict that intervals in float64 prove; None where they do not, or the target has its own exact values."""
    if exam.target.exact is not None:
        return None
    return adjudicate_by_intervals(exam, finding, expected, *exact_reference(exam, finding.call), seconds)


def adjudicate_rows(
    exam: Examination, finding: Finding, expected: Mapping[str, Expected], rows: torch.Tensor, seconds: float
) -> Verdict | None:
    """The verdict that the kernel is wrong, by the rows of the finding's elements alone; None where they do not say."""
    try:
        exact = evaluate_exact_outputs(exam, finding.call, seconds, rows=rows)
    except Unadjudicated:
        return None
    wrong = False
    for name, output in outputs_of_rows(exam, finding.call, rows).items():
        one = select_expected(expected[name], rows.tolist())
        wrong |= bool(find_faults(output, one, exact.values[name], exam.precision, exam.target.contract)[0].any())
    if not wrong:
        return None
    place = {row: number for number, row in enumerate(rows.tolist())}
    elements = tuple(
        add_exact_value(element, exact, (place[element.index[0]], *element.index[1:])) for element in finding.elements
    )
    return Verdict("kernel", "", exact.digits, replace(finding, elements=elements), exact.proof)


def adjudicate_together(
    exam: Examination, finding: Finding, late: Mapping[str, Expected], seconds: float
) -> Verdict | None:
    """The verdict on elements that are wrong together; None where an element is wrong alone, or nothing is.

    `late` is what the last stage expects. The kernel is wrong where they are wrong together about exact values as well.
    """
    index, contract = finding.call, exam.target.contract
    outputs = exam.returned.calls[index].outputs
    if any(compare_elements(outputs[name], one, exam.precision, contract).wrong for name, one in late.items()):
        return None
    found = find_wrong_together(exam, index, outputs)
    if not found:
        return None
    try:
        exact = evaluate_exact_outputs(exam, index, seconds)
    except Unadjudicated as reason:
        certain = all(_is_certain(late[name], wrong.expected) for name, wrong in found.items())
        return Verdict("unadjudicated" if certain else "undecided", str(reason), finding=finding)
    true = {name: to_float64(values) for name, values in exact.values.items() if name in outputs}
    name = "kernel" if find_wrong_together(exam, index, outputs, true) else "undecided"
    return Verdict(name, "", exact.digits, finding, exact.proof)


def _is_certain(late: Expected, without_walks: Expected) -> bool:
    """Whether float64's own error is small against the bounds of short sums."""
    return late.uncertainty is not None and bool((late.uncertainty <= without_walks.spread / CERTAIN).all())


def is_beyond_doubt(exam: Examination, index: int, expected: Mapping[str, Expected]) -> bool:
    """Whether some element is so far off that float64's value is evidence enough, which was measured to be certain."""
    outputs = exam.returned.calls[index].outputs
    for name, one in expected.items():
        compared = compare_elements(outputs[name], one, exam.precision, exam.target.contract)
        own = torch.zeros_like(compared.bound) if one.uncertainty is None else SAFETY * one.uncertainty
        certain = own <= compared.bound / CERTAIN
        if bool(((compared.symptom > 0) & certain & (compared.ratio > FAR)).any()):
            return True
    return False


def _any(masks: Mapping[str, torch.Tensor]) -> bool:
    """Whether a mask of any output has an element."""
    return any(bool(mask.any()) for mask in masks.values())


def find_reference_faults(
    exam: Examination, index: int, expected: Mapping[str, Expected], exact: ExactOutputs, seconds: float
) -> dict[str, torch.Tensor]:
    """Elements of each floating output where the reference is in doubt and its formula is at fault, not the problem.

    A stable formula errs by no more than a change of its inputs in their last digits would explain. So sums that
    cancel are nobody's fault: there a kernel is right by luck, because it adds up in another order.
    """
    outputs = exam.returned.calls[index].outputs
    expected = {name: output for name, output in expected.items() if output.value.is_floating_point()}
    true = {name: to_float64(exact.values[name]) for name in expected}
    suspect = {
        name: suspect_reference(outputs[name], output, exam.precision).cpu()
        & reference_much_worse(outputs[name].cpu(), to_cpu(output), true[name])
        for name, output in expected.items()
    }
    for seed in range(PERTURBATIONS):
        if not _any(suspect):
            break
        try:
            moved = evaluate_exact_outputs(exam, index, seconds, quick=True, perturbation=seed)
        except Unadjudicated:
            return {name: torch.zeros_like(mask) for name, mask in suspect.items()}
        for name, mask in suspect.items():
            explained = CONDITIONING * (to_float64(moved.values[name]) - true[name]).abs()
            suspect[name] = mask & ((to_cpu(expected[name]).value - true[name]).abs() > explained)
    return suspect


def evaluate_exact_outputs(
    exam: Examination,
    index: int,
    seconds: float,
    elements: int = ELEMENTS,
    *,
    quick: bool = False,
    perturbation: int | None = None,
    rows: torch.Tensor | None = None,
) -> ExactOutputs:
    """The exact outputs of a call, with perturbed inputs if `perturbation` seeds one. May raise `Unadjudicated`.

    With `rows` they are those of a call with these rows of the batch alone.
    """
    try:
        from fuzz.reference.exact import evaluate_elementwise, evaluate_exact
    except ImportError:
        raise Unadjudicated("mpmath is not installed") from None
    reference, arguments = exact_reference(exam, index)
    if rows is not None:
        arguments = select_rows(exam, index, arguments, rows)
    if perturbation is not None:
        reference, arguments = perturb_problem(reference, arguments, perturbation)
    limits: dict[str, Any] = dict(seconds=seconds, elements=elements, quick=quick)
    if exam.target.exact is not None:
        exact = evaluate_elementwise(exam.target.exact, arguments, **limits)
    else:
        exact = evaluate_exact(reference, arguments, **limits)
    outputs = outputs_of_rows(exam, index, rows)
    for name, output in outputs.items():
        if name not in exact.values or exact.values[name].shape != tuple(output.shape):
            raise Unadjudicated(f"exact values have no output {name!r} of shape {tuple(output.shape)}")
    return exact


def exact_reference(exam: Examination, index: int) -> tuple[Reference, dict[str, Any]]:
    """The reference of a call with the gradients that the target has, and the inputs of both, floats in float64."""
    reference, inputs = whole_reference(exam, index)
    return reference, {name: as_float64(x) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


def as_float64(x: torch.Tensor) -> torch.Tensor:
    """Floating tensors as float64, which holds their values."""
    return x.double() if x.is_floating_point() else x


def to_float64(exact: np.ndarray[Any, Any]) -> torch.Tensor:
    """Exact values as doubles; integers and bools as they are."""
    if exact.dtype != object:
        return torch.from_numpy(np.array(exact))
    return torch.tensor([float(x) for x in exact.reshape(-1).tolist()], dtype=torch.float64).view(exact.shape)


def find_faults(
    output: torch.Tensor,
    expected: Expected,
    exact: np.ndarray[Any, Any],
    precision: Precision,
    contract: Contract = ENVELOPE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(elements where the kernel is wrong, elements where the reference is) of one output.

    The kernel is wrong where it disagrees with the reference, and with the exact value under the reference's envelope.
    The reference is wrong where it is not finite and the exact value is; where the kernel is right though they
    disagree, and it is further from the exact value than its own uncertainty. Where the exact value is a pole and the
    reference is finite, nobody is wrong.
    """
    value, output, true = expected.value.cpu(), output.cpu(), to_float64(exact)
    apart = compare_elements(output, expected, precision, contract).symptom.cpu() > 0
    uncertainty = torch.zeros(value.shape) if expected.uncertainty is None else expected.uncertainty.cpu()
    if not value.is_floating_point():
        return apart & (output != true), apart & (output == true) & (value != true)
    overflows = torch.isfinite(true) & ~torch.isfinite(value)
    apart = apart & (torch.isfinite(true) | ~torch.isfinite(value))
    centred = compare_elements(output, Expected(true, expected.spread.cpu(), None), precision, contract)
    wrong = apart & ~overflows & (centred.symptom > 0)
    off = (value - true).abs() > SAFETY * uncertainty + 2.0**-52 * true.abs()
    return wrong, (apart & overflows) | (apart & ~wrong & off)


def to_cpu(expected: Expected) -> Expected:
    """The same on the host."""
    return replace(expected, value=expected.value.cpu())


def add_exact_value(element: Element, exact: ExactOutputs, index: tuple[int, ...] | None = None) -> Element:
    """An element with its exact value, which stands at `index`, unless at the element's own."""
    from fuzz.reference.exact import format_number

    return replace(element, exact=format_number(exact.values[element.output][index or element.index]))


def reference_finding(
    exam: Examination,
    index: int,
    reference: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    exact: ExactOutputs,
) -> Finding:
    """The finding that the reference is wrong, with some of the elements that show it."""
    outputs = exam.returned.calls[index].outputs
    places = [(name, tuple(place)) for name, wrong in reference.items() for place in wrong.nonzero().tolist()]
    shown = [
        add_exact_value(make_element(name, place, outputs[name], repr(expected[name].value[place].item())), exact)
        for name, place in places[:MAX_ELEMENTS]
    ]
    names = tuple(dict.fromkeys(name for name, _ in places))
    first, total = shown[0], sum(reference[name].numel() for name in names)
    message = (
        f"the reference of {exam.target.name} is wrong in {len(places)} of {total} elements: {first.output}"
        f"{list(first.index)} is {first.want} by the reference, {first.exact} in truth; the kernel returns {first.got}"
    )
    return Finding(
        ACCURACY.name, names, "reference", message, tuple(shown), index, disagreeing=len(places), compared=total
    )
