"""Defines the severity of a finding: how ordinary the inputs are that show it, and the most ordinary example."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuzz.errors import UsageError
from fuzz.escaping import clean_text
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.rate import Rate

SEVERITIES = ("low", "medium", "high")
UNGRADED = "medium"
"""What a finding counts as that is not graded yet."""
SEVERITY_OF_CLASS = {"ordinary": "high", "special": "medium", "layout": "medium", "extreme": "low"}
"""Every class of inputs, the most ordinary first, and the severity of what it shows first.

ordinary: zeros and values of ordinary size, 2^-10 to 2^16, contiguous, tensors of up to 2^20 elements together.
special: ties, equal rows, whole numbers, a mean far from 0, outliers, anything from 2^-32 to 2^32, -inf as a mask.
layout: strides, offsets, alignment, expansion.
extreme: values beyond, subnormals, near the limits of the dtype; huge strides and sizes.
"""
INPUT_CLASSES = tuple(SEVERITY_OF_CLASS)
FOR_NOW = "for now: "
"""Stands before the end of the reason of a grade that the next run, or `fuzz shrink`, is to replace."""


@dataclass(frozen=True)
class TypicalCase:
    """The most ordinary example that was drawn, its finding, and in how many inputs drawn like it that shows."""

    case: Case
    finding: Finding
    rate: Rate


@dataclass(frozen=True)
class Grade:
    """The severity of a finding. `reason` says why it is not that of its input class, where it is not.

    Where no drawn input shows the finding there is no typical case. `eager_ratio` is the error over bound of eager
    PyTorch in the working precision, `eager_dtype`, in the typical case, or in the least one where there is none; None
    where it is not compared.
    """

    severity: str
    input_class: str
    typical: TypicalCase | None = None
    eager_ratio: float | None = None
    eager_dtype: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES or self.input_class not in INPUT_CLASSES:
            raise ValueError(f"there is no severity {self.severity!r}, or no input class {self.input_class!r}")
        object.__setattr__(self, "reason", clean_text(self.reason))

    @property
    def is_for_now(self) -> bool:
        """Whether the time ended before all inputs were tried."""
        return FOR_NOW in self.reason


def is_at_least(severity: str | None, threshold: str) -> bool:
    """Whether a severity, None for what is not graded, is the threshold or above it."""
    return SEVERITIES.index(severity or UNGRADED) >= SEVERITIES.index(threshold)


def check_severity(name: str) -> str:
    """The severity of that name. UsageError where there is none."""
    if name not in SEVERITIES:
        raise UsageError(f"--fail-on is one of {', '.join(SEVERITIES)}, not {name!r}")
    return name


def describe_eager(ratio: float, dtype: str) -> str:
    """The error of eager PyTorch in words."""
    error = f"{ratio:.2g} of the bound" if math.isfinite(ratio) else "not finite where it should be, or the reverse"
    return f"torch in {dtype}: {error}"
