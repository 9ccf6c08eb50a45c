"""A tensor of exact numbers, and the dispatch mode that computes with them.

A tensor's numbers lie in a flat array. Its positions, an int64 tensor of its shape and strides, say which of them are
its elements. So a view is the same view of the positions, over the same array, and a write through it is seen. Any
operation that only moves data is done by torch itself, on positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import RuleMode, RuleTable, RuleTensor, make_wrapper
from fuzz.reference.exact.arithmetic import Array, Number, RealArithmetic

__all__ = ["RULES", "ExactMode", "ExactTensor", "from_array", "make_view"]

LARGEST_TENSOR = 1 << 18
"""Elements of the largest tensor that is computed."""
RULES = RuleTable(lambda func: f"no rule for {func}")
"""How each operation applies to exact tensors."""


class ExactTensor(RuleTensor):
    """Wrapper subclass of dtype float64. The elements are numbers[positions]."""

    numbers: Array
    positions: Tensor

    def to_array(self) -> Array:
        """The elements as an array of the tensor's shape."""
        elements: Array = self.numbers[self.positions.reshape(-1).numpy()].reshape(self.shape)
        return elements

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"ExactTensor({self.to_array().tolist()})"


class ExactMode(RuleMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one evaluation over the numbers of an arithmetic.

    Operations on integers and bools are torch's own; whatever is floating is computed exactly.
    """

    wrapper = ExactTensor
    always_rounds = True

    def __init__(self, rules: RuleTable, arithmetic: RealArithmetic) -> None:
        super().__init__(rules)
        self.arithmetic = arithmetic

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.arithmetic.check_deadline()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def lift_tensor(self, t: Tensor) -> Tensor:
        """A floating tensor as an exact one."""
        return from_array(self.array(t)) if t.is_floating_point() else t

    def store(self, target: Any, value: Any) -> None:
        """Write numbers, which broadcast, into the array that all views share."""
        positions = target.positions.reshape(-1).numpy()
        target.numbers[positions] = np.broadcast_to(self.array(value), tuple(target.shape)).reshape(-1)

    def replace(self, target: Any, source: Any) -> None:
        target.positions = source.positions

    def allocate(self, real: Tensor) -> ExactTensor:
        """A new tensor with the values and strides of a floating tensor."""
        extent = 1 + sum((n - 1) * s for n, s in zip(real.shape, real.stride(), strict=True)) if real.numel() else 0
        _check_size(extent)
        positions = torch.arange(extent).as_strided(real.shape, real.stride())
        numbers = np.full(extent, None, dtype=object)
        numbers[positions.reshape(-1).numpy()] = self.arithmetic.array(real.detach().reshape(-1).tolist())
        return make_view(numbers, positions)

    def array(self, x: Any) -> Array:
        """The numbers of an exact tensor, of a plain one, or of a scalar, as an array of its shape."""
        if isinstance(x, Tensor):
            _check_size(x.numel())
        if type(x) is ExactTensor:
            return x.to_array()
        out = np.empty(x.shape if isinstance(x, Tensor) else (), dtype=object)
        if not isinstance(x, Tensor):
            out[()] = self._scalar(x)
        elif inside_autograd():
            out.reshape(-1)[:] = [self._scalar(value) for value in x.detach().reshape(-1).tolist()]
        else:
            out.reshape(-1)[:] = self.arithmetic.array(x.detach().reshape(-1).tolist())
        return out

    def _scalar(self, value: float) -> Number:
        """A scalar. A user's is the double that it is; autograd's own formulas mean what their doubles stand for."""
        return self.arithmetic.autograd_constant(value) if inside_autograd() else self.arithmetic.number(value)


def inside_autograd() -> bool:
    """Whether autograd's backward calls."""
    return bool(torch._C._current_graph_task_id() != -1)


def make_view(numbers: Array, positions: Tensor) -> ExactTensor:
    """The tensor of these positions of some numbers."""
    t: ExactTensor = make_wrapper(
        ExactTensor, positions.shape, positions.stride(), positions.storage_offset(),
        dtype=torch.float64, device=positions.device,
    )  # fmt: skip
    t.numbers, t.positions = numbers, positions
    return t


def from_array(values: Any) -> ExactTensor:
    """A new contiguous tensor of these numbers, an array of its shape."""
    array: Array = np.asarray(values, dtype=object)
    _check_size(array.size)
    return make_view(array.reshape(-1), torch.arange(array.size).reshape(array.shape))


def _check_size(size: int) -> None:
    if size > LARGEST_TENSOR:
        raise Unadjudicated(f"too large: a tensor of {size} elements")
