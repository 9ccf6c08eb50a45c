"""Runs the first stages of the accuracy oracle for all replicas of a plan at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fuzz.model.case import ListedPlan
from fuzz.model.outcome import Returned
from fuzz.oracles.comparison.batch_rows import select_expected
from fuzz.oracles.comparison.bias import relative_errors, rows_that_may_be_biased
from fuzz.oracles.comparison.bits import Outputs
from fuzz.oracles.comparison.elements import ElementComparison, compare_elements
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    STAGES_OF_MANY,
    ExpectedOutputs,
    check_shapes,
    evaluate_stacked_reference,
)
from fuzz.oracles.comparison.reference_error import suspect_reference
from fuzz.oracles.comparison.row_errors import rows_that_may_be_uneven
from fuzz.oracles.execution.examination import Examination, ScreenedReference, common_stack, stacked_outputs
from fuzz.reference.envelope import Divergence

SUSPECTS = 1
"""Replicas of a plan whose suspect reference is checked by exact values: it is the same reference for all of them."""

TOGETHER = 2
"""Replicas of a plan that are examined alone because elements may be wrong together: all run the same steps."""


def screen(exams: Sequence[Examination]) -> None:
    """Sets `screened` of the replicas in which nothing disagrees: each is compared as it would be alone.

    The oracle examines one by one the replicas that are left, and plans that cannot be evaluated at once.
    """
    if len(exams) < 2 or exams[0].target.reference is None or exams[0].target.contract.kind == "bitwise":
        return
    clear = [exam for exam in exams if isinstance(exam.outcome, Returned)]
    for index in range(len(exams[0].plan.calls)):
        for exam in clear:
            exam.screened = None
        clear = screen_call(clear, index)


def screen_call(exams: Sequence[Examination], index: int) -> list[Examination]:
    """The replicas in which no element of any output of one call disagrees, as far as the first stages can say.

    Their `screened` is what that stage evaluated.
    """
    cleared: list[Examination] = []
    evaluated: list[tuple[int, ExpectedOutputs, list[Examination]]] = []
    known: tuple[int, ExpectedOutputs] | None = None
    pending, suspects, together = list(exams), 0, set[int]()
    # What is listed is to be decided as it is alone: nobody draws it again.
    is_listed = bool(exams) and isinstance(exams[0].plan, ListedPlan)
    most_suspects, most_together = (len(exams), len(exams)) if is_listed else (SUSPECTS, TOGETHER)
    for stage in STAGES_OF_MANY[:-1]:
        outputs = stack_outputs(pending, index)
        if not outputs:
            break
        try:
            expected = evaluate_stacked_reference(pending, index, stage, known)
        except Divergence:
            for exam in pending:
                exam.diverged = True
            break
        evaluated.append((stage, expected, pending))
        check_shapes(pending[0].target, outputs, expected)
        precision, contract = pending[0].precision, pending[0].target.contract
        compared = {name: compare_elements(outputs[name], one, precision, contract) for name, one in expected.items()}
        wrong = disagreeing_rows(list(compared.values()), pending)
        suspect = sorted({*suspect_rows(outputs, expected, compared, pending)} - {*wrong})[: most_suspects - suspects]
        suspects += len(suspect)
        kept = {*wrong, *suspect, *together}
        for row, exam in enumerate(pending):
            if row not in kept:
                exam.screened = ScreenedReference(stage, expected, row)
                cleared.append(exam)
        if not wrong:
            break
        together = {place for place, row in enumerate(wrong) if row in together}
        if stage == BEFORE_THOROUGH:
            together = set(rows_that_may_be_wrong(outputs, expected, compared, wrong)[:most_together])
        pending, rows = [pending[row] for row in wrong], torch.tensor(wrong)
        known = stage, {name: select_expected(one, rows.to(one.value.device)) for name, one in expected.items()}
    for stage, expected, some in evaluated if len(cleared) < len(exams) else ():
        for row, exam in enumerate(some):
            if not exam.cleared:
                exam.uncleared.setdefault(index, []).append(ScreenedReference(stage, expected, row))
    return cleared


def rows_that_may_be_wrong(
    outputs: Outputs, expected: ExpectedOutputs, compared: Mapping[str, ElementComparison], rows: list[int]
) -> list[int]:
    """Places in `rows` of replicas whose elements may be wrong together."""
    found = torch.zeros(len(rows), dtype=torch.bool)
    for name, one in expected.items():
        errors = relative_errors(outputs[name], one, compared[name])[rows]
        found |= rows_that_may_be_biased(errors, one.value[rows]).cpu()
        found |= rows_that_may_be_uneven(outputs[name][rows], compared[name].symptom[rows]).cpu()
    return [int(place) for place in found.nonzero().flatten()]


def suspect_rows(
    outputs: Outputs,
    expected: ExpectedOutputs,
    compared: Mapping[str, ElementComparison],
    pending: Sequence[Examination],
) -> list[int]:
    """Rows in which the reference may be worse than the output."""
    precision, count = pending[0].precision, len(pending)
    names = [name for name, one in compared.items() if one.may_be_suspect]
    if not names:
        return []
    suspect = [suspect_reference(outputs[name], expected[name], precision) for name in names]
    rows = torch.cat([one.reshape(count, one.numel() // count) for one in suspect], 1).any(1)
    return list(rows.nonzero().flatten().tolist())


def disagreeing_rows(compared: Sequence[ElementComparison], pending: Sequence[Examination]) -> list[int]:
    """Rows in which an element of some output disagrees; sets the worst ratio of the others."""
    count = len(pending)
    symptoms = torch.cat([one.symptom.reshape(count, one.symptom.numel() // count) for one in compared], 1)
    ratios = torch.cat([one.ratio.reshape(count, one.ratio.numel() // count) for one in compared], 1)
    wrong = symptoms.any(1)
    worst = ratios.amax(1) if ratios.numel() else ratios.new_zeros(count)
    for exam, bad, ratio in zip(pending, wrong.tolist(), worst.tolist(), strict=True):
        if not bad and ratio > exam.worst:
            exam.worst = ratio
    return list(wrong.nonzero().flatten().tolist())


def stack_outputs(exams: Sequence[Examination], index: int) -> Mapping[str, torch.Tensor]:
    """The outputs of replicas stacked by name; empty where there are none or their names, shapes or dtypes differ."""
    if common_stack(exams):
        return stacked_outputs(exams)
    parts = [exam.returned.calls[index].outputs for exam in exams]
    if not parts or len({tuple((n, t.shape, t.dtype) for n, t in part.items()) for part in parts}) > 1:
        return {}
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
