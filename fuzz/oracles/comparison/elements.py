"""Compares one output with its reference, element by element.

An element disagrees when |out - ref| > SAFETY * envelope + half a unit in the last place of the output's dtype + the
smallest subnormal that the backend keeps. Nothing depends on shape: outputs of several replicas may be stacked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import DType, from_bits, overflow_threshold, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import PATTERNS
from fuzz.oracles.comparison.reference_error import COARSE, own_error
from fuzz.reference.envelope import SAFETY, Expected, Precision
from fuzz.reference.envelope.noise_loops import FloatFormat, lies_flat, ready_loops
from fuzz.target.contract import ENVELOPE, Contract

OVERFLOWN = 64.0
"""By this factor from the largest number of a format, a wrong factor may be why one side overflows."""
SYMPTOMS = ("nonfinite", "sign", "value")
EXPONENT_BITS = 0x7FF << 52
"""The bits of a double that hold its exponent: alone they are the power of two at or below it."""
PATTERN_TOLERANCE = 0.125
"""By this share numbers may differ, besides their bounds, and count as one: a wrong formula rounds in other ways."""


@dataclass(frozen=True)
class ElementComparison:
    """Element by element: which symptom (0 none, else 1 + its index in SYMPTOMS), the bound, and error over bound.

    `may_be_suspect` is False where `suspect_reference` is known to hold for no element.
    """

    symptom: torch.Tensor
    bound: torch.Tensor
    ratio: torch.Tensor
    may_be_suspect: bool = True

    @property
    def wrong(self) -> bool:
        return bool(self.symptom.any())

    @property
    def first_symptom(self) -> str:
        """The first of SYMPTOMS that an element shows."""
        return SYMPTOMS[int(self.symptom[self.symptom > 0].min()) - 1]

    @property
    def worst(self) -> float:
        return float(self.ratio.max()) if self.ratio.numel() else 0.0


def compare_elements(
    output: torch.Tensor, expected: Expected, precision: Precision, contract: Contract = ENVELOPE
) -> ElementComparison:
    """Compares one output with its reference, element by element; the rules are those of the module's docstring."""
    value = expected.value
    out = output.to(value.device)
    if not out.is_floating_point():
        wrong = (out != value) & (expected.spread == 0)
        return ElementComparison(wrong * 3, torch.zeros_like(expected.spread), torch.where(wrong, torch.inf, 0.0))
    kind = named_dtype(DTYPE_NAMES[output.dtype])
    out = out.double()
    if contract.kind != "ulps" and (agreeing := _compare_by_loop(out, expected, kind, precision)):
        return agreeing
    value, slack, bound = error_bounds(expected, kind, precision, contract)
    error = (out - value).abs_()
    if bool((error <= bound).all()):
        # 0 where both are 0, or both infinite.
        ratio = (error / bound).nan_to_num_(nan=0.0)
        return ElementComparison(torch.zeros_like(bound, dtype=torch.int8), bound, ratio)
    if all(not one.numel() or float(one.abs().amax()) < overflow_threshold(kind) for one in (out, expected.value)):
        return _compare_finite(out, value, bound, error)
    unbounded = ~torch.isfinite(bound)
    nonfinite = _nonfinite(out, expected.value, slack, kind)
    over = (error > bound) & torch.isfinite(out) & torch.isfinite(value)
    sign = over & (value.abs() > bound) & (out * value < 0)
    symptom = torch.where(nonfinite, 1, torch.where(sign, 2, torch.where(over, 3, 0)))
    symptom = torch.where(unbounded, 0, symptom)
    ratio = torch.nan_to_num(error / bound, nan=0.0, posinf=0.0)
    return ElementComparison(symptom, bound, torch.where(nonfinite & ~unbounded, torch.inf, ratio))


def _compare_by_loop(
    out: torch.Tensor, expected: Expected, kind: DType, precision: Precision
) -> ElementComparison | None:
    """The comparison where no element disagrees; None where one does, and what the loop cannot walk through."""
    parts, loops = [out, expected.value, expected.spread], ready_loops()
    if expected.uncertainty is not None:
        parts.append(expected.uncertainty)
    if loops is None or not all(lies_flat(one) and one.shape == out.shape for one in parts):
        return None
    bound, ratio = torch.empty_like(out), torch.empty_like(out)
    addresses = [one.data_ptr() for one in parts] + [None] * (4 - len(parts))
    tiny = max(precision.eta, kind.smallest_subnormal)
    scales = SAFETY, tiny, own_error(expected, precision)[1] / COARSE
    coarse = loops.compare(*addresses, out.numel(), *scales, number_format(kind), bound.data_ptr(), ratio.data_ptr())
    if coarse < 0:
        return None
    return ElementComparison(torch.zeros_like(bound, dtype=torch.int8), bound, ratio, coarse > 0)


@lru_cache
def number_format(kind: DType) -> FloatFormat:
    """What loops need of a format, as `half_ulp` has it."""
    return FloatFormat(kind.smallest_normal, 2.0**kind.bias, 2.0 ** -(kind.mantissa + 1))


def _compare_finite(
    out: torch.Tensor, value: torch.Tensor, bound: torch.Tensor, error: torch.Tensor
) -> ElementComparison:
    """The comparison where every number is finite and none has to overflow, in a third of the steps."""
    over = error > bound
    sign = over & (value.abs() > bound) & (out * value < 0)
    symptom = torch.where(sign, 2, torch.where(over, 3, 0))
    return ElementComparison(symptom, bound, torch.nan_to_num(error / bound, nan=0.0, posinf=0.0))


def error_bounds(
    expected: Expected, kind: DType, precision: Precision, contract: Contract = ENVELOPE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(value, slack, bound): what is due, how far it is uncertain, and how far an output may be from it.

    The envelope: half a unit of the output's format, its underflow, and the spread. Ulps: so many units of the
    correctly rounded value, its underflow, and what float64 itself is uncertain about.
    """
    value = expected.value
    slack = SAFETY * expected.spread if contract.kind != "ulps" else torch.zeros_like(expected.spread)
    if expected.uncertainty is not None:
        slack.add_(SAFETY * expected.uncertainty)
    if contract.kind == "ulps":
        value = rounded(value, kind)
        flushed = precision.eta if precision.eta > kind.smallest_subnormal else 0.0
        return value, slack, slack + contract.ulps * 2 * half_ulp(value.abs(), kind) + flushed
    tiny = max(precision.eta, kind.smallest_subnormal)
    return value, slack, half_ulp(value.abs().add_(slack), kind).add_(slack).add_(tiny)


def rounded(value: torch.Tensor, kind: DType) -> torch.Tensor:
    """The values rounded to nearest in a format, once; torch rounds float64 to bfloat16 by way of float32."""
    words = to_bits(value.detach().cpu().numpy(), kind)
    return torch.from_numpy(np.asarray(from_bits(words, kind), dtype=np.float64)).to(value.device)


def _nonfinite(out: torch.Tensor, value: torch.Tensor, slack: torch.Tensor, kind: DType) -> torch.Tensor:
    """Where exactly one side is finite: overflow is judged by whether the exact value, rounded, may overflow."""
    allowed = allowed_nonfinite(value, slack, kind)
    unexpected = [(out == math.inf) & ~allowed.positive, (out == -math.inf) & ~allowed.negative]
    missing = torch.isfinite(out) & (allowed.must_overflow | ~torch.isfinite(value))
    return unexpected[0] | unexpected[1] | torch.isnan(out) & ~allowed.nan | missing


@dataclass(frozen=True)
class AllowedNonfinite:
    """Element by element, whether an output may be an infinity of either sign, or NaN; and whether what is due is
    finite, and must become infinite."""

    positive: torch.Tensor
    negative: torch.Tensor
    nan: torch.Tensor
    must_overflow: torch.Tensor


def allowed_nonfinite(value: torch.Tensor, slack: torch.Tensor, kind: DType) -> AllowedNonfinite:
    """What an output in a format may be besides finite numbers, where these values are due, rounded.

    Where NaN is due, anything that is not finite is allowed; where an infinity is, NaN as well.
    """
    finite, limit = torch.isfinite(value), overflow_threshold(kind)
    may_overflow = value.abs() + slack >= limit
    positive = torch.where(finite, may_overflow & (value >= -slack), value != -math.inf)
    negative = torch.where(finite, may_overflow & (value <= slack), value != math.inf)
    return AllowedNonfinite(positive, negative, ~finite, (value.abs() - slack >= limit) & finite)


def symptoms_by_cause(output: torch.Tensor, expected: Expected, compared: ElementComparison) -> list[str]:
    """The symptoms that an output's elements show, without overflows of one side where there are others.

    A factor that is wrong moves what is near the edge of the range beyond it.
    """
    symptom = compared.symptom
    if output.is_floating_point() and bool((symptom == 1).any()):
        out, value = output.to(symptom.device).double(), expected.value
        near = torch.minimum(out.abs(), value.abs()) >= named_dtype(DTYPE_NAMES[output.dtype]).largest / OVERFLOWN
        others = torch.where((symptom == 1) & near & (torch.sign(out) == torch.sign(value)), 0, symptom)
        symptom = others if bool(others.any()) else symptom
    return [name for number, name in enumerate(SYMPTOMS, 1) if bool((symptom == number).any())]


def largest_error(output: torch.Tensor, expected: Expected) -> float:
    """The largest error of an output's finite elements over the largest magnitude that is due; at most 1e300."""
    value = expected.value.double()
    out = output.to(value.device).double()
    finite = torch.isfinite(out) & torch.isfinite(value)
    error, scale = (float(torch.where(finite, one, 0.0).abs().max()) for one in (out - value, value))
    return min(error / scale, 1e300) if scale else 1e300 * (error > 0)


def largest_wrong(output: torch.Tensor, expected: Expected, compared: ElementComparison) -> float:
    """The largest magnitude that a wrong element of an output has, or should have, where both are finite; else 0."""
    value = expected.value
    out = output.to(value.device).double()
    wrong = (compared.symptom.to(value.device) > 0) & torch.isfinite(out) & torch.isfinite(value)
    return float(torch.where(wrong, torch.maximum(out.abs(), value.double().abs()), 0.0).max())


def shared_patterns(output: torch.Tensor, expected: Expected, compared: ElementComparison) -> list[str]:
    """The PATTERNS that all wrong elements of an output share; all PATTERNS where no finite element is wrong."""
    value, bound = expected.value.double(), compared.bound
    out = output.to(value.device).double()
    wrong = (compared.symptom.to(value.device) > 0) & torch.isfinite(out) & torch.isfinite(value)
    out, value, bound = out[wrong], value[wrong], bound.to(value.device)[wrong]
    if output.is_floating_point():
        # A wrong formula rounds once more than the right one, and the wrong number may be larger than the right one.
        bound = 2 * bound + half_ulp(out.abs(), named_dtype(DTYPE_NAMES[output.dtype]))
    off = out - value
    numbers = {"offset": (off, bound), "factor": (off / value, bound / value.abs()), "number": (out, bound)}
    return [name for name in PATTERNS if is_one_number(*numbers[name])]


def is_one_number(numbers: torch.Tensor, slack: torch.Tensor) -> bool:
    """Whether one number is within the slack of all, and within a share of them; not of infinities."""
    if not numbers.numel():
        return True
    slack = slack + PATTERN_TOLERANCE * numbers.abs()
    return bool(torch.isfinite(numbers).all()) and bool((numbers - slack).max() <= (numbers + slack).min())


def half_ulp(magnitude: torch.Tensor, kind: DType) -> torch.Tensor:
    """Half a unit in the last place of the format at these magnitudes (float64, not negative)."""
    normal = magnitude.clamp(min=kind.smallest_normal).nan_to_num_(0.5, 0.5)
    power = normal.view(torch.int64).bitwise_and_(EXPONENT_BITS).view(torch.float64)
    return power.clamp_(max=2.0**kind.bias).mul_(2.0 ** -(kind.mantissa + 1))
