"""Decides accuracy findings by intervals that enclose the exact value: fast for calls of any size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from fuzz.errors import Unadjudicated
from fuzz.model.finding import INTERVALS, Element, Finding, Verdict
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import SAFETY, Expected, Precision, Reference
from fuzz.target.contract import Contract

if TYPE_CHECKING:
    from fuzz.reference.interval import Interval

CERTAIN_DIGITS = 3
"""Digits that an interval has to have so that they are shown."""


def adjudicate_by_intervals(
    exam: Examination,
    finding: Finding,
    expected: Mapping[str, Expected],
    reference: Reference,
    arguments: Mapping[str, Any],
    seconds: float,
) -> Verdict | None:
    """The verdict that the kernel is wrong, or that nobody is, where intervals prove it; None where they do not.

    `reference(**arguments)` is what exact evaluation calls.
    """
    try:
        # Its formulas are those of exact evaluation: without mpmath there are neither.
        import fuzz.reference.exact  # noqa: F401
        from fuzz.reference.interval import evaluate_intervals

        intervals = evaluate_intervals(reference, arguments, seconds=seconds)
    except (ImportError, Unadjudicated):
        return None
    outputs = exam.returned.calls[finding.call].outputs
    if any(name not in intervals or intervals[name].mid.shape != output.shape for name, output in outputs.items()):
        return None
    decided = [
        decide(output, expected[name], intervals[name], exam.precision, exam.target.contract)
        for name, output in outputs.items()
    ]
    if any(bool(wrong.any()) for wrong, _ in decided):
        elements = tuple(add_enclosure(element, intervals[element.output]) for element in finding.elements)
        return Verdict("kernel", "", 0, replace(finding, elements=elements), INTERVALS)
    if all(bool(cleared.all()) for _, cleared in decided):
        return Verdict("undecided", "", 0, finding, INTERVALS)
    return None


def decide(
    output: torch.Tensor, expected: Expected, interval: Interval, precision: Precision, contract: Contract
) -> tuple[torch.Tensor, torch.Tensor]:
    """(elements that are wrong wherever in its interval the exact value lies, elements that are right everywhere).

    An element is wrong only where it disagrees with the reference as well; what agrees with it is right.
    """
    output, value, spread = output.cpu(), expected.value.cpu(), expected.spread.cpu()
    apart = compare_elements(output, expected, precision, contract).symptom.cpu() > 0
    mid, radius = interval
    if not value.is_floating_point():
        return apart & (output != mid), ~apart
    known = torch.isfinite(mid) & torch.isfinite(radius) & torch.isfinite(value)
    widest = compare_elements(output, Expected(mid, spread, radius / SAFETY), precision, contract)
    nearest = torch.sign(mid) * (mid.abs() - radius).clamp(min=0)
    narrowest = compare_elements(output, Expected(nearest, spread, None), precision, contract).bound
    is_right = known & ((output.double() - mid).abs() + radius <= narrowest)
    # A reference further off than it may be is a matter for exact values.
    uncertainty = torch.zeros_like(value) if expected.uncertainty is None else expected.uncertainty.cpu()
    is_right &= (value - mid).abs() + radius <= SAFETY * uncertainty + 2.0**-52 * nearest.abs()
    return apart & known & (widest.symptom > 0), ~apart | is_right


def add_enclosure(element: Element, interval: Interval) -> Element:
    """An element with the digits of its exact value that are certain, if there are some."""
    mid, radius = (float(part[element.index]) for part in interval)
    # A quotient of the two may be infinite.
    if not (math.isfinite(mid) and radius < abs(mid)):
        return element
    digits = min(math.floor(-math.log10(max(radius / abs(mid), 1e-17))), 17)
    return replace(element, exact=f"{mid:.{digits}g}") if digits >= CERTAIN_DIGITS else element
