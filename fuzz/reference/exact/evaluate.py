"""Evaluates a reference over exact numbers, with more and more digits until its value is certain.

Balls of Arb enclose the value, so that one evaluation proves how accurate it is. Where python-flint is missing, or no
precision decides a comparison (two numbers that are equal by different formulas), numbers of mpmath are evaluated until
two precisions agree, which is no proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
from mpmath import mp, mpf
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fuzz.errors import Unadjudicated, one_line
from fuzz.reference.dispatch import NoRule
from fuzz.reference.envelope import float64_defaults
from fuzz.reference.envelope.evaluate import check_outputs
from fuzz.reference.exact.arithmetic import Array, RealArithmetic, Undetermined
from fuzz.reference.exact.mpmath_arithmetic import MpmathArithmetic
from fuzz.reference.exact.rules import RULES, attention
from fuzz.reference.exact.tensor import ExactMode

__all__ = ["ExactOutputs", "enclosures_available", "evaluate_elementwise", "evaluate_exact", "format_number"]

ELEMENTS, SECONDS = 4096, 30.0
"""The largest inputs, and how long an evaluation goes on, unless the caller says otherwise."""

BITS = 84
"""Bits to which a ball must enclose a number: 25 digits, more than a double has and than are shown."""
BALL_DIGITS, BALL_LIMIT, BALL_LIMIT_QUICK = 100, 3200, 400
"""Digits of the first evaluation over balls, and of the last one."""
RELATIVE_DIGITS = 800
"""Digits up to which tiny numbers are enclosed to `BITS` too, from which on a negligible radius is enough."""
NEGLIGIBLE, NEGLIGIBLE32 = -1075, -150
"""Exponents of negligible radii: half the smallest subnormal number of float64, and of float32."""

DIGITS, DIGITS_LIMIT = 50, 12800
"""Digits of mpmath's first evaluation, and of the last one."""
CANCELLED_DIGITS = 800
"""Digits at which a sum that cancels to nothing is believed: what is left of it would be below 10^-400."""
AGREEMENT = mpf(10) ** -25
"""Relative difference of two evaluations that counts as none."""
TINY, TINY32 = mpf(10) ** -340, mpf(10) ** -45
"""Differences below this, which no output's format holds, count as none; the same where float32 is the widest."""

Value = np.ndarray[Any, Any]
Attempt = Callable[[RealArithmetic], dict[str, Value]]
"""What computes outputs in an arithmetic, in the precision in force."""


@dataclass(frozen=True)
class ExactOutputs:
    """The exact outputs: arrays of mpf, or of integers and bools.

    digits: those of the precision that decided. proof: "enclosure" if each number is proven to be within 2^-84 of
    itself, or within a negligible radius; "" if two precisions agree on it.
    """

    values: Mapping[str, Value]
    digits: int
    proof: str = ""


def evaluate_exact(
    reference: Callable[..., Mapping[str, Tensor]],
    inputs: Mapping[str, Any],
    *,
    seconds: float = SECONDS,
    elements: int = ELEMENTS,
    quick: bool = False,
) -> ExactOutputs:
    """reference(**inputs) over exact numbers. Floating inputs and scalars are taken as the numbers that they are.

    `quick` is for callers that compare with something that is right on its own: what two evaluations agree on is
    believed, and differences that are too small for float32 count as none.
    Raises `Unadjudicated` with the reason where there is no rule for an operation, the time is spent, the inputs are
    too large, or no precision decides.
    """
    _check_size(inputs, elements)

    def attempt(arithmetic: RealArithmetic) -> dict[str, Value]:
        mode = ExactMode(RULES, arithmetic)
        arguments = {name: _to_argument(mode, x) for name, x in inputs.items()}
        try:
            with float64_defaults(), Formulas(), mode:
                outputs = check_outputs(reference, reference(**arguments))
        except Undetermined:
            raise
        except (Unadjudicated, NoRule) as error:
            raise Unadjudicated(one_line(error)) from None
        except Exception as error:
            raise Unadjudicated(f"the reference fails over exact numbers: {one_line(error)}") from error
        return {name: mode.array(t) if t.is_floating_point() else t.numpy() for name, t in outputs.items()}

    start = time.monotonic()
    if enclosures_available():
        outputs = _enclose(attempt, start, seconds, quick)
        if outputs is not None:
            return outputs
    return _agree(attempt, start + seconds, quick)


def evaluate_elementwise(
    function: Callable[..., Mapping[str, Any]],
    inputs: Mapping[str, Any],
    *,
    seconds: float = SECONDS,
    elements: int = ELEMENTS,
    quick: bool = False,
) -> ExactOutputs:
    """function(**numbers) for each element of inputs that broadcast: a target's `exact=`, in mpmath's precision.

    Raises `Unadjudicated` as `evaluate_exact` does.
    """
    _check_size(inputs, elements)
    tensors = [name for name, x in inputs.items() if isinstance(x, Tensor)]
    rest = {name: mpf(x) if type(x) is float else x for name, x in inputs.items() if name not in tensors}

    def attempt(arithmetic: RealArithmetic) -> dict[str, Value]:
        arrays = np.broadcast_arrays(*(arithmetic.array(inputs[name].tolist()) for name in tensors))
        out: dict[str, Value] = {}
        for index in np.ndindex(*arrays[0].shape):
            arithmetic.check_deadline()
            numbers = {name: array[index] for name, array in zip(tensors, arrays, strict=True)}
            for name, value in _call_author(function, {**numbers, **rest}).items():
                out.setdefault(name, np.empty(arrays[0].shape, dtype=object))[index] = value
        return out

    return _agree(attempt, time.monotonic() + seconds, quick, always_cancels=True)


def enclosures_available() -> bool:
    """Whether python-flint is installed, so that evaluation can prove its accuracy."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def format_number(x: Any, digits: int = 20) -> str:
    """A number's decimal digits, for people."""
    return str(mpmath.nstr(x, digits))


class Formulas(TorchFunctionMode):
    """Replaces what torch computes with a rounded constant above the dispatch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        chosen = attention if func is F.scaled_dot_product_attention else func
        return chosen(*args, **(kwargs or {}))


def _call_author(function: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The results of `exact=` for one element, as numbers."""
    try:
        return {name: mpf(value) for name, value in function(**arguments).items()}
    except Exception as error:
        raise Unadjudicated(f"exact= fails: {one_line(error)}") from error


def _check_size(inputs: Mapping[str, Any], elements: int) -> None:
    total = sum(x.numel() for x in inputs.values() if isinstance(x, Tensor))
    if total > elements:
        raise Unadjudicated(f"too large: {total} elements, more than {elements}")


def _to_argument(mode: ExactMode, x: Any) -> Any:
    """An input as the reference receives it."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach().cpu().clone(memory_format=torch.contiguous_format)
    return mode.allocate(x.to(torch.float64)) if x.is_floating_point() else x


def _precisions(first: int, last: int) -> Iterator[int]:
    """Digits, doubled."""
    while first <= last:
        yield first
        first *= 2


def _enclose(attempt: Attempt, start: float, seconds: float, quick: bool) -> ExactOutputs | None:
    """Outputs that balls prove; None where no precision is enough, or half of the time.

    Raises `Unadjudicated` where `quick` and that was too little for the first precision: mpmath, which takes longer and
    needs two evaluations, would spend the other half in vain.
    """
    from fuzz.reference.exact.ball_arithmetic import BallArithmetic

    deadline = start + seconds / 2
    for digits in _precisions(BALL_DIGITS, BALL_LIMIT_QUICK if quick else BALL_LIMIT):
        arithmetic = BallArithmetic(deadline)
        with arithmetic.precision(digits), np.errstate(all="ignore"):  # NaN is a value here.
            try:
                outputs = attempt(arithmetic)
            except Undetermined:
                continue
            except Unadjudicated:
                if time.monotonic() > deadline and not (quick and digits == BALL_DIGITS):
                    return None
                raise
            negligible = NEGLIGIBLE32 if quick else NEGLIGIBLE if digits >= RELATIVE_DIGITS else None
            arrays = [value for value in outputs.values() if value.dtype == object]
            if all(arithmetic.is_accurate(array, BITS, negligible) for array in arrays):
                values = {n: arithmetic.to_mpf(v) if v.dtype == object else v for n, v in outputs.items()}
                return ExactOutputs(values, digits, "enclosure")
    return None


def _agree(attempt: Attempt, deadline: float, quick: bool, always_cancels: bool = False) -> ExactOutputs:
    """Outputs of mpmath on which two precisions agree; if a sum cancelled, the second has many digits."""
    enough, tiny = (DIGITS, TINY32) if quick else (CANCELLED_DIGITS, TINY)
    known: dict[str, Value] | None = None
    for digits in _precisions(DIGITS, DIGITS_LIMIT):
        arithmetic = MpmathArithmetic(deadline)
        with arithmetic.precision(digits), np.errstate(all="ignore"):  # NaN is a value here.
            outputs = attempt(arithmetic)
        if known is not None and all(_alike(known[name], value, tiny) for name, value in outputs.items()):
            if digits >= enough or not (arithmetic.cancelled or always_cancels):
                return ExactOutputs(outputs, digits)
        known = outputs
    raise Unadjudicated(f"the answer does not settle by {digits} digits")


def _alike(one: Array, other: Array, tiny: Any) -> bool:
    """Whether numbers agree in the digits that matter, where they are not tiny; NaN with NaN."""
    if one.dtype != object or one.shape != other.shape:
        return bool(np.array_equal(one, other))
    for a, b in zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True):
        if a == b or (a != a and b != b):
            continue
        if not (mp.isfinite(a) and mp.isfinite(b)) or abs(a - b) > max(AGREEMENT * abs(b), tiny):
            return False
    return True
