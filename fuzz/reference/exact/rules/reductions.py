"""Defines rules of sums and products: reductions, moments, norms, cumulative ones, matrix products.

A rule takes a mode, an operation and its arguments, and computes on arrays of exact numbers. Where an operation is
defined by simpler ones, the rule is a formula over tensors, whose operations have rules themselves; it may ignore a
dtype, as exact numbers have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import Rule, added_matmul, from_formula
from fuzz.reference.exact.arithmetic import Array
from fuzz.reference.exact.tensor import RULES, ExactMode, from_array

__all__ = ["register"]


def _axes(dim: Any, rank: int) -> list[int]:
    """Axes of a reduction's dims: None and [] mean all."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return [d % rank for d in dims] if rank else []


def _arguments(mode: ExactMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Array, list[int], bool]:
    """(numbers, axes, keepdim) of a reduction (self, dim, keepdim)."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    return mode.array(args[0]), _axes(dim, args[0].dim()), keepdim


def sum_(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rule of aten::sum."""
    return from_array(mode.arithmetic.total(*_arguments(mode, args, kwargs)))


def mean(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sum divided by the number of terms."""
    x, axes, keepdim = _arguments(mode, args, kwargs)
    count = mode.arithmetic.array(int(np.prod([x.shape[d] for d in axes], dtype=int)))
    return from_array(mode.arithmetic.map("div", mode.arithmetic.total(x, axes, keepdim), count))


def prod(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rule of aten::prod."""
    x, axes, keepdim = _arguments(mode, args, kwargs)
    for axis in axes:
        ones = mode.arithmetic.array(np.ones([1 if d == axis else n for d, n in enumerate(x.shape)]))
        parts = [x.take([i], axis) for i in range(x.shape[axis])]
        x = reduce(partial(mode.arithmetic.map, "mul"), parts, ones)
    return from_array(x if keepdim else x.squeeze(tuple(axes)))


def cumulative(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rule of aten::cumsum and aten::cumprod."""
    out = mode.array(args[0]).copy()
    if not out.ndim:
        return from_array(out)
    rows = np.moveaxis(out, args[1], 0)
    name = "add" if func._schema.name == "aten::cumsum" else "mul"
    for i in range(1, len(rows)):
        rows[i : i + 1] = mode.arithmetic.map(name, rows[i - 1 : i], rows[i : i + 1])
    return from_array(out)


def matmul(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rule of aten::mm, bmm, mv, dot and vdot."""
    a, b = mode.array(args[0]), mode.array(args[1])
    added_axes = (-2,) * (a.ndim == 1) + (-1,) * (b.ndim == 1)
    a = a[None, :] if a.ndim == 1 else a
    b = b[:, None] if b.ndim == 1 else b
    return from_array(mode.arithmetic.matmul(a, b).squeeze(added_axes))


def moments(as_deviation: bool, with_mean: bool) -> Rule:
    """Rule of var, std, var_mean, std_mean (x, dim, *, correction, keepdim)."""

    def formula(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        axes = _axes(dim, x.dim())
        center = x.mean(axes, True) if axes else x
        count = int(np.prod([x.shape[d] for d in axes], dtype=int))
        d = x - center
        out = (d * d).sum(axes, keepdim) / max(count - (1 if correction is None else correction), 0)
        out = out.sqrt() if as_deviation else out
        return (out, center if keepdim or not axes else center.squeeze(axes)) if with_mean else out

    return from_formula(formula)


def norm(x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Formula of aten::linalg_vector_norm."""
    axes = _axes(dim, x.dim())
    if order in (float("inf"), float("-inf")):
        return x.abs().amax(axes, keepdim) if order > 0 else x.abs().amin(axes, keepdim)
    if order in (0, 1):
        return (x.abs() if order else (x != 0).to(x.dtype)).sum(axes, keepdim)
    if order == 2:
        return (x * x).sum(axes, keepdim).sqrt()
    exponent = torch.full((), float(order))
    return x.abs().pow(exponent).sum(axes, keepdim).pow(exponent.reciprocal())


def old_norm(x: Tensor, order: Any = None, dim: Any = None, keepdim: bool = False) -> Tensor:
    """aten::norm, whose order may be None."""
    return norm(x, 2 if order is None else order, dim, keepdim)


def nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of what is a number."""
    return torch.where(torch.isnan(x), 0.0, x).sum(_axes(dim, x.dim()), keepdim)


def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))): no maximum is subtracted, because nothing overflows here."""
    return x.exp().sum(_axes(dim, x.dim()), keepdim).log()


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x)))."""
    return x.exp().cumsum(dim).log()


def register() -> None:
    """State the rules of this module."""
    RULES.register(sum_, "sum.default", "sum.dim_IntList")
    RULES.register(mean, "mean.default", "mean.dim")
    RULES.register(prod, "prod.default", "prod.dim_int")
    RULES.register(cumulative, "cumsum.default", "cumprod.default")
    RULES.register(matmul, "mm.default", "bmm.default", "mv.default", "dot.default", "vdot.default")
    RULES.register(added_matmul, "addmm.default", "addmv.default", "addbmm.default", "baddbmm.default")
    RULES.register(from_formula(norm), "linalg_vector_norm")
    RULES.register(from_formula(old_norm), "norm.Scalar", "norm.ScalarOpt_dim")
    RULES.register(from_formula(nansum), "nansum")
    RULES.register(from_formula(logsumexp), "logsumexp.default")
    RULES.register(from_formula(logcumsumexp), "logcumsumexp.default")
    for name, as_deviation in (("var", False), ("std", True)):
        RULES.register(moments(as_deviation, with_mean=False), f"{name}.correction")
        RULES.register(moments(as_deviation, with_mean=True), f"{name}_mean.correction")
