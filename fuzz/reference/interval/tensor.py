"""A tensor of intervals, and the dispatch mode that computes with them.

An interval is a midpoint and a radius, both in float64: the exact number is at most the radius away from the midpoint.
A radius of infinity says that nothing is known. Infinite midpoints are exact, with a radius of 0.

A tensor that the reference casts to a narrower format has its dtype, and may be moved, compared and cast back. What is
computed in that format is refused: how torch rounds on the way, such as sums of bfloat16 in float32, is not known.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import Rule, RuleMode, RuleTable, RuleTensor, make_wrapper

__all__ = [
    "RULES",
    "TINY",
    "UNIT",
    "IntervalMode",
    "IntervalTensor",
    "Pair",
    "keeps_format",
    "make_tensor",
    "require_float64",
]

UNIT, TINY = 2.0**-53, 2.0**-1070
"""The unit roundoff of float64, and more than what an operation loses by underflow."""
INFLATION = 1 + 2.0**-40
"""By this factor radii are enlarged, which are themselves computed with rounding."""
RULES = RuleTable(lambda func: f"no interval rule for {func}")
"""How each operation applies to intervals."""


class Pair(NamedTuple):
    """Midpoints and radii, plain float64 tensors of one shape."""

    mid: Tensor
    radius: Tensor


def keeps_format(rule: Rule) -> Rule:
    """Mark a rule that rounds nothing, or says itself to which format."""
    rule.keeps_format = True  # type: ignore[attr-defined]
    return rule


class IntervalTensor(RuleTensor):
    """Wrapper subclass, of float64 or of a narrower dtype. A view of it holds views of both tensors, of float64."""

    mid: Tensor
    radius: Tensor

    @property
    def is_exact(self) -> bool:
        """Whether every number is known."""
        return not bool(self.radius.any())

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"IntervalTensor({self.mid.tolist()}, {self.radius.tolist()})"


class IntervalMode(RuleMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one evaluation, until a deadline of `time.monotonic()`."""

    wrapper = IntervalTensor
    always_rounds = True

    def __init__(self, deadline: float) -> None:
        super().__init__(RULES)
        self.deadline = deadline

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if time.monotonic() > self.deadline:
            raise Unadjudicated("the time is spent")
        if not getattr(self.rules[func], "keeps_format", False) and (kwargs or {}).get("dtype") is not torch.float64:
            require_float64(func, [*args, *(kwargs or {}).values()])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def lift_tensor(self, t: Tensor) -> Tensor:
        """A floating tensor as one of exact numbers."""
        return make_tensor(self.pair(t), t.dtype) if t.is_floating_point() else t

    def pair(self, x: Any) -> Pair:
        """The midpoints and radii of a tensor or a scalar. What autograd multiplies by may stand for another number."""
        if type(x) is IntervalTensor:
            return Pair(x.mid, x.radius)
        mid = x.detach().double() if isinstance(x, Tensor) else torch.tensor(float(x), dtype=torch.float64)
        rounded = not isinstance(x, int) and torch._C._current_graph_task_id() != -1
        return Pair(mid, mid.abs() * UNIT if rounded else torch.zeros_like(mid))

    def store(self, target: Any, value: Any) -> None:
        if target.dtype is not torch.float64 and getattr(value, "dtype", None) is not target.dtype:
            raise Unadjudicated(f"the reference writes into a tensor of {target.dtype}, which rounds")
        given = self.pair(value)
        target.mid.copy_(given.mid)
        target.radius.copy_(given.radius)

    def replace(self, target: Any, source: Any) -> None:
        target.mid, target.radius = source.mid, source.radius


def require_float64(func: OpOverload, operands: list[Any]) -> None:
    """Raise `Unadjudicated` where torch rounds the result to a narrower format: no operand that decides is double."""
    parts = [part for one in operands for part in (one if isinstance(one, list | tuple) else [one])]
    tensors = [one for one in parts if isinstance(one, Tensor) and one.is_floating_point()]
    decisive = [one for one in tensors if one.dim()] or tensors
    if decisive and all(one.dtype is not torch.float64 for one in decisive):
        raise Unadjudicated(f"{func}: the reference computes in {decisive[0].dtype}")


def make_tensor(pair: Pair, dtype: torch.dtype = torch.float64) -> IntervalTensor:
    """The tensor that holds these midpoints and radii, all numbers of its dtype."""
    mid = pair.mid
    t: IntervalTensor = make_wrapper(
        IntervalTensor, mid.shape, mid.stride(), mid.storage_offset(), dtype=dtype, device=mid.device
    )
    t.mid, t.radius = mid, pair.radius
    return t


def rounded(mid: Tensor, radius: Tensor, *operands: Pair, error: float | Tensor = UNIT) -> IntervalTensor:
    """Results whose midpoints are off by a relative error beside what `radius` says.

    What is not finite though its operands are has left the range of float64: nothing is known of it. Infinities that
    come from infinities are exact.
    """
    finite = torch.isfinite(mid)
    whole = torch.nan_to_num((radius + error * mid.abs()) * INFLATION + TINY, nan=torch.inf)
    whole = torch.where(finite, whole, torch.inf)
    if not bool(finite.all()) and operands:
        inherited = ~torch.isfinite(sum((0 * one.mid for one in operands), start=torch.zeros(())))
        exact = inherited.broadcast_to(mid.shape) if inherited.dim() <= mid.dim() else torch.zeros_like(finite)
        certain = sum((one.radius for one in operands), start=torch.zeros(())).broadcast_to(mid.shape) < torch.inf
        whole = torch.where(~finite & exact & certain, 0.0, whole)
    return make_tensor(Pair(mid, whole))
