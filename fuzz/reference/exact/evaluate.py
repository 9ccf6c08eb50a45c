"""Evaluate a reference over exact numbers, with more and more digits until the answer is stable."""

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
from fuzz.reference.envelope import NoRule, float64_defaults
from fuzz.reference.envelope.evaluate import check_outputs
from fuzz.reference.exact.numbers import Cells, cells
from fuzz.reference.exact.rules import RULES, attention, resolve
from fuzz.reference.exact.tensor import ExactMode, allocated, numbers

__all__ = ["DIGITS", "ExactOutputs", "evaluate_elementwise", "evaluate_exact"]

DIGITS = 50
"""Decimal digits of the first evaluation."""
FAR = 800
"""Digits at which a sum that cancels to nothing is believed: what is left of it would be below 10^-400."""
AGREE = mpf(10) ** -25
"""Relative difference of two evaluations that counts as none."""
TINY = mpf(10) ** -340
"""Magnitudes below this, which no output's format holds, are alike."""
SMALL = mpf(10) ** -45
"""The same where float32 is the widest format: its smallest subnormal is 1.4e-45."""
ELEMENTS, SECONDS = 4096, 30.0
"""What an evaluation takes on, and how long it goes on, unless the caller says otherwise."""

Value = np.ndarray[Any, Any]
Attempt = Callable[[float], tuple[dict[str, Value], bool]]
"""What computes at the precision in force until a deadline: outputs, and whether a sum cancelled."""


@dataclass(frozen=True)
class ExactOutputs:
    """The exact outputs: arrays of mpf, or whole numbers and bools; and the digits that they were found stable at."""

    values: Mapping[str, Value]
    digits: int


def evaluate_exact(
    reference: Callable[..., Mapping[str, Tensor]],
    inputs: Mapping[str, Any],
    *,
    seconds: float = SECONDS,
    elements: int = ELEMENTS,
    quick: bool = False,
) -> ExactOutputs:
    """reference(**inputs) over exact numbers. Floating inputs and scalars are taken as the numbers that they are.

    `quick` is for who compares with something that is right on its own: what two evaluations agree on is believed,
    and numbers that are too small for float32 need not agree.
    Raises `Unadjudicated` with the reason where there is no rule for an operation, the time is spent, the inputs are
    too large, or the answer does not settle.
    """
    _small(inputs, elements)

    def attempt(deadline: float) -> tuple[dict[str, Value], bool]:
        mode = ExactMode(RULES, resolve, deadline)
        arguments = {name: _argument(x) for name, x in inputs.items()}
        try:
            with float64_defaults(), Formulas(), mode:
                outputs = check_outputs(reference, reference(**arguments))
        except (Unadjudicated, NoRule) as error:
            raise Unadjudicated(one_line(error)) from None
        except Exception as error:
            raise Unadjudicated(f"the reference fails over exact numbers: {one_line(error)}") from error
        return {name: _plain(t) for name, t in outputs.items()}, mode.cancelled

    return _settled(attempt, seconds, quick)


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
    _small(inputs, elements)
    tensors = [name for name, x in inputs.items() if isinstance(x, Tensor)]
    rest = {name: mpf(x) if type(x) is float else x for name, x in inputs.items() if name not in tensors}

    def attempt(deadline: float) -> tuple[dict[str, Value], bool]:
        arrays = np.broadcast_arrays(*(cells(inputs[name].tolist()) for name in tensors))
        out: dict[str, Value] = {}
        for place in np.ndindex(*arrays[0].shape):
            if time.monotonic() > deadline:
                raise Unadjudicated("the time is spent")
            given = {name: array[place] for name, array in zip(tensors, arrays, strict=True)}
            for name, value in _called(function, {**given, **rest}).items():
                out.setdefault(name, np.empty(arrays[0].shape, dtype=object))[place] = value
        return out, True

    return _settled(attempt, seconds, quick)


def _called(function: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `exact=` says of one element, as numbers."""
    try:
        return {name: mpf(value) for name, value in function(**arguments).items()}
    except Exception as error:
        raise Unadjudicated(f"exact= fails: {one_line(error)}") from error


class Formulas(TorchFunctionMode):
    """Replaces what torch computes with a rounded constant above the dispatch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        chosen = attention if func is F.scaled_dot_product_attention else func
        return chosen(*args, **(kwargs or {}))


def _small(inputs: Mapping[str, Any], elements: int) -> None:
    total = sum(x.numel() for x in inputs.values() if isinstance(x, Tensor))
    if total > elements:
        raise Unadjudicated(f"too large: {total} elements, more than {elements}")


def _argument(x: Any) -> Any:
    """An input as the reference receives it."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach().cpu().clone(memory_format=torch.contiguous_format)
    return allocated(x.to(torch.float64)) if x.is_floating_point() else x


def _plain(t: Tensor) -> Value:
    """An output as an array."""
    whole: Value = numbers(t) if t.is_floating_point() else t.numpy()
    return whole


def _settled(attempt: Attempt, seconds: float, quick: bool) -> ExactOutputs:
    """Doubles the digits until two evaluations agree; where a sum cancelled, the second has `FAR` digits or more."""
    deadline = time.monotonic() + seconds
    far, tiny = (DIGITS, SMALL) if quick else (FAR, TINY)
    known: dict[str, Value] | None = None
    for digits in _precisions():
        # numpy would warn of NaN, which is a value here.
        with mpmath.workdps(digits), np.errstate(all="ignore"):
            found, cancelled = attempt(deadline)
        if known is not None and _agree(known, found, tiny) and (digits >= far or not cancelled):
            return ExactOutputs(found, digits)
        known = found
    raise Unadjudicated(f"the answer does not settle by {digits} digits")


def _precisions() -> Iterator[int]:
    digits = DIGITS
    while digits <= 16 * FAR:
        yield digits
        digits *= 2


def _agree(one: Mapping[str, Value], other: Mapping[str, Value], tiny: Any) -> bool:
    """Whether all outputs of two evaluations are alike."""
    return all(
        value.shape == other[name].shape
        and (bool(np.array_equal(value, other[name])) if value.dtype != object else _alike(value, other[name], tiny))
        for name, value in one.items()
    )


def _alike(one: Cells, other: Cells, tiny: Any) -> bool:
    """Whether numbers agree in the digits that matter, where they are not tiny; NaN with NaN."""
    for a, b in zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True):
        if a == b or (a != a and b != b):
            continue
        if not (mp.isfinite(a) and mp.isfinite(b)) or abs(a - b) > max(AGREE * abs(b), tiny):
            return False
    return True
