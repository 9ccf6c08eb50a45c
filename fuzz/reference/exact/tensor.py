"""Exact: a tensor of mpmath numbers, and the dispatch mode that computes with them.

A tensor's numbers lie in an array of cells; its places, an int64 tensor of its shape and strides, say which of them.
So a view is the same view of the places, over the same cells, and a write through it is seen. Any operation that only
moves data is done by torch itself, on places.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz.errors import Unadjudicated
from fuzz.reference.exact.numbers import Cells, Number, cells

__all__ = ["ExactMode", "Exact", "Rule", "allocated", "lifted", "numbers", "view_of", "wrap"]

Rule = Callable[["ExactMode", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""How an operation applies to exact tensors."""
LARGEST = 1 << 18
"""Elements of the largest tensor that is computed."""


class Exact(Tensor):
    """Wrapper subclass of dtype float64. The numbers are cells[places]."""

    cells: Cells
    places: Tensor

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Only reached outside a mode: inside, `ExactMode` sees every operation first."""
        raise Unadjudicated(f"{func}: an exact tensor is used outside the calculation that made it")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Exact({numbers(self).tolist()})"


_make: Callable[..., Any] = Tensor._make_wrapper_subclass


class ExactMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one evaluation at one precision.

    `cancelled`: a sum of terms that are not zero had less than half of the precision left. Then a stable answer may
    only be stable because the digits that matter are beyond the precision each time.
    """

    def __init__(self, rules: dict[OpOverload, Rule], resolve: Callable[[OpOverload], Rule], deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rules = rules
        self.resolve = resolve
        self.deadline = deadline
        self.cancelled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would wrap the dispatch in a guard against its compiler."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Operations on whole numbers and bools are torch's own; anything floating is computed exactly."""
        kwargs = kwargs or {}
        if time.monotonic() > self.deadline:
            raise Unadjudicated("the time is spent")
        rule = self.rules.get(func)
        if rule is None and Exact in types:
            rule = self.rules[func] = self.resolve(func)
        if Exact in types:
            assert rule is not None
            return rule(self, func, args, kwargs)
        if getattr(rule, "creates", False):
            return rule(self, func, args, kwargs)  # type: ignore[misc]
        out = func(*args, **kwargs)
        if not _floats(out) or func._schema.is_mutable:
            return out
        # Whole numbers were divided, or constants came in: a rule computes, torch's own result is rounded.
        rule = rule or self.rules.setdefault(func, self.resolve(func))
        return rule(self, func, lifted(args), kwargs)


def _floats(out: Any) -> bool:
    """Whether a result is, or holds, a floating tensor."""
    parts = out if isinstance(out, tuple | list) else (out,)
    return any(isinstance(t, Tensor) and t.is_floating_point() for t in parts)


def view_of(store: Cells, places: Tensor) -> Exact:
    """The tensor of these places of some cells."""
    e: Exact = _make(
        Exact, places.shape, places.stride(), places.storage_offset(), dtype=torch.float64, device=places.device
    )
    e.cells, e.places = store, places
    return e


def _fits(size: int) -> None:
    if size > LARGEST:
        raise Unadjudicated(f"too large: a tensor of {size} elements")


def wrap(values: Any) -> Exact:
    """A new contiguous tensor of these numbers, an array of its shape."""
    array: Cells = np.asarray(values, dtype=object)
    _fits(array.size)
    return view_of(array.reshape(-1), torch.arange(array.size).reshape(array.shape))


def allocated(real: Tensor) -> Exact:
    """A new tensor with the values and strides of a floating tensor."""
    extent = 1 + sum((n - 1) * s for n, s in zip(real.shape, real.stride(), strict=True)) if real.numel() else 0
    _fits(extent)
    places = torch.arange(extent).as_strided(real.shape, real.stride())
    store = np.full(extent, None, dtype=object)
    store[places.reshape(-1).numpy()] = cells(real.detach().reshape(-1).tolist())
    return view_of(store, places)


def lifted(x: Any) -> Any:
    """A floating plain tensor as an exact one, also inside lists; anything else as it is."""
    if isinstance(x, tuple | list):
        return type(x)(lifted(one) for one in x)
    return wrap(numbers(x)) if isinstance(x, Tensor) and x.is_floating_point() and type(x) is not Exact else x


def numbers(x: Any) -> Cells:
    """The numbers of an exact tensor, of a plain one, or of a scalar, as an array of its shape."""
    if isinstance(x, Tensor):
        _fits(x.numel())
    if type(x) is Exact:
        held: Cells = x.cells[x.places.reshape(-1).numpy()].reshape(x.shape)
        return held
    if isinstance(x, Tensor):
        flat = [constant(v) for v in x.detach().reshape(-1).tolist()]
        return cells(flat).reshape(x.shape) if flat else np.empty(x.shape, dtype=object)
    return cells(constant(x))


def constant(value: Any) -> Number:
    """A scalar. A user's is the double that it is; autograd's own formulas mean what their doubles stand for."""
    if type(value) is float and torch._C._current_graph_task_id() != -1:
        return MEANT[value]() if value in MEANT else value
    return value


def _meant() -> dict[float, Callable[[], Number]]:
    """Irrational constants in the derivatives that torch's autograd knows: erf, erfinv, exp2, log2, log10."""
    from mpmath import mp

    formulas: list[Callable[[], Number]] = [
        lambda: 2 / mp.sqrt(mp.pi), lambda: -2 / mp.sqrt(mp.pi), lambda: mp.sqrt(mp.pi) / 2, lambda: +mp.ln2,
        lambda: +mp.ln10,
    ]  # fmt: skip
    # torch writes log(10) with its last digit wrong.
    return {**{float(formula()): formula for formula in formulas}, 2.3025850929940456: lambda: +mp.ln10}


MEANT = _meant()
