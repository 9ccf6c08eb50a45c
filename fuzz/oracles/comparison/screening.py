"""Screen: the first stages of the accuracy oracle for all replicas of a plan at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fuzz.model.outcome import Returned
from fuzz.oracles.comparison.elements import Comparison, compare_elements
from fuzz.oracles.comparison.expected import (
    STAGES,
    ExpectedOutputs,
    check_shapes,
    common,
    evaluate_stacked_reference,
    rows_of,
)
from fuzz.oracles.comparison.reference_error import suspect_reference
from fuzz.oracles.examination import Examination
from fuzz.reference.envelope import Divergence, Expected

ASKED = 1
"""Replicas of a plan about which arbitrary precision is asked, where their reference is in doubt: it is one for all."""


def screen(exams: Sequence[Examination]) -> None:
    """Clears the replicas in which nothing disagrees: each is judged as it would be alone.

    Those that are left, and plans that cannot be evaluated at once, are for the oracle to examine one by one.
    """
    if len(exams) == 1 or exams[0].target.reference is None or exams[0].target.contract.kind == "bitwise":
        return
    clear = [exam for exam in exams if isinstance(exam.outcome, Returned)]
    for index in range(len(exams[0].plan.calls)):
        clear = screened(clear, index)
    for exam in clear:
        exam.cleared = True


def screened(pending: Sequence[Examination], index: int) -> list[Examination]:
    """Those in which no element of any output of one call disagrees, as far as the first stages tell."""
    cleared: list[Examination] = []
    expected: ExpectedOutputs | None = None
    asked = 0
    for stage in range(len(STAGES) - 1):
        outputs = stacked(pending, index)
        if not outputs:
            break
        try:
            expected = evaluate_stacked_reference(pending, index, stage, expected)
        except Divergence:
            break
        check_shapes(pending[0].target, outputs, expected)
        how = pending[0].precision, pending[0].target.contract
        wrong = unclear([compare_elements(outputs[name], expected[name], *how) for name in expected], pending)
        unlike = set(wrong)
        doubted = [place for place in find_suspect_references(outputs, expected, pending) if place not in unlike][
            : ASKED - asked
        ]
        asked += len(doubted)
        unlike.update(doubted)
        cleared += [exam for place, exam in enumerate(pending) if place not in unlike]
        pending = [pending[place] for place in wrong]
        expected = {name: only(one, wrong) for name, one in expected.items()}
    return cleared


def find_suspect_references(
    outputs: Mapping[str, torch.Tensor], expected: ExpectedOutputs, pending: Sequence[Examination]
) -> list[int]:
    """Places of the exams in which a reference may be worse than the output; the oracle asks about those."""
    precision, count = pending[0].precision, len(pending)
    doubts = [suspect_reference(outputs[name], one, precision) for name, one in expected.items()]
    doubted = torch.cat([one.reshape(count, one.numel() // count) for one in doubts], 1).any(1)
    return [int(place) for place in doubted.nonzero().flatten()]


def only(expected: Expected, places: list[int]) -> Expected:
    """Some of the replicas."""
    uncertainty = None if expected.uncertainty is None else expected.uncertainty[places]
    return Expected(expected.value[places], expected.spread[places], uncertainty)


def unclear(judged: Sequence[Comparison], pending: Sequence[Examination]) -> list[int]:
    """Places of the exams in which an element of some output disagrees; the others are told their worst ratio."""
    count = len(pending)
    symptoms = torch.cat([one.symptom.reshape(count, one.symptom.numel() // count) for one in judged], 1)
    ratios = torch.cat([one.ratio.reshape(count, one.ratio.numel() // count) for one in judged], 1)
    wrong = symptoms.any(1)
    worst = ratios.amax(1) if ratios.numel() else ratios.new_zeros(count)
    for exam, bad, ratio in zip(pending, wrong.tolist(), worst.tolist(), strict=True):
        exam.worst = exam.worst if bad else max(exam.worst, ratio)
    return [int(place) for place in wrong.nonzero().flatten()]


def stacked(exams: Sequence[Examination], index: int) -> dict[str, torch.Tensor]:
    """Outputs of the same name one above the other; empty where there are none or they are unlike each other."""
    stack = common(exams)
    if stack:
        return {name: rows_of(tensor, exams) for name, tensor in stack.outputs.items()}
    parts = [exam.returned.calls[index].outputs for exam in exams]
    if not parts or len({tuple((n, t.shape, t.dtype) for n, t in part.items()) for part in parts}) > 1:
        return {}
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
