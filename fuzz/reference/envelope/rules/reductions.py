"""Defines rules of reductions: sums are perturbed by what orders of their terms may lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten, rounds
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, wrap, wrap_all
from fuzz.reference.envelope.rules.composites import greatest
from fuzz.reference.envelope.summation import (
    product_errors,
    product_steps,
    rounding_steps,
    running_product_errors,
    tree_steps,
)

__all__ = ["inner_dims", "register", "total"]


def inner_dims(dim: Any, rank: int) -> list[int]:
    """Dims of the stacked tensor for the logical dims of a reduction: None and [] mean all."""
    if rank == 0:
        return []
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(1, rank + 1))
    return [d % rank + 1 for d in ([dim] if isinstance(dim, int) else dim)]


def _length(x: Tensor, dims: list[int]) -> int:
    """Number of terms of a reduction."""
    n = 1
    for d in dims:
        n *= x.shape[d]
    return n


def total(mode: EnsembleMode, x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    """Stacked sum over dims, perturbed."""
    if not dims:
        return x.clone()
    t = torch.sum(x, dims, keepdim)
    n = _length(x, dims)
    if n <= 1 or not x.is_floating_point():
        return t
    # Terms are products as a rule, and equal ones underflow equally: n halves of the underflow unit at a safety of 4.
    noise, size = mode.noise, torch.sum(x.abs(), dims, keepdim)
    if not noise.adds_up(x.numel()):
        return noise.add_error_(t, size, rounding_steps(n), n / 4)
    sum_error = noise.sum_error(x, dims)
    if sum_error is not None and not keepdim:
        sum_error = sum_error.squeeze(dims)
    return noise.add_error_(t, size, tree_steps(n), n / 4, sum_error)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, list[int], bool]:
    """(stacked operand in the wanted dtype, dims, keepdim) of a reduction (self, dim, keepdim, *, dtype)."""
    x = args[0].stacked
    if kwargs.get("dtype") is not None:
        x = x.to(kwargs["dtype"])
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    return x, inner_dims(dim, args[0].dim()), keepdim


def in_dtype(t: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """A result in the dtype that is asked for: whole numbers, which PyTorch combines in int64, wrap around in it."""
    return t if kwargs.get("dtype") is None else t.to(kwargs["dtype"])


@rounds
def sum_(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sum over dims."""
    x, dims, keepdim = _arguments(args, kwargs)
    if args[0].exponent is not None:
        x = exponentials_again(mode, x, args[0].exponent)
    out = wrap(mode, in_dtype(total(mode, x, dims, keepdim), kwargs))
    out.terms = args[0].terms * (args[0].numel() // max(out.numel(), 1))
    return out if args[0].product is None else mode.mark_dot(out)


def exponentials_again(mode: EnsembleMode, x: Tensor, exponent: Tensor) -> Tensor:
    """Stacked exponentials of sums of products as they are where these sums are added up a second time.

    Compilers compute a cheap value again where it is used in another layout, and fuse a product into a sum in one lane
    or use and not in another one. So the exponentials that are added up need not have the bits of those that are
    divided by their sum. What is loaded, or comes from one element of each operand, is the same each time.
    """
    change = mode.noise.from_other_members(exponent) - exponent
    return x * torch.exp(torch.where(torch.isfinite(change), change, 0.0))


def _mean(mode: EnsembleMode, x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    """Stacked mean: the perturbed sum, then a division or a product with 1/n (two roundings)."""
    n = _length(x, dims)
    t = total(mode, x, dims, keepdim)
    return mode.noise.round_(t.div_(n), 2.0) if n != 1 else t


@rounds
def mean(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mean over dims."""
    x, dims, keepdim = _arguments(args, kwargs)
    return wrap(mode, _mean(mode, x, dims, keepdim))


def _moments(mode: EnsembleMode, args: tuple[Any, ...], kwargs: dict[str, Any], root: bool) -> tuple[Tensor, Tensor]:
    """Two-pass (variance or deviation, mean), the stable formula: sum((x - mean)^2) / max(n - correction, 0)."""
    noise = mode.noise
    x, dims = args[0].stacked, inner_dims(args[1] if len(args) > 1 else None, args[0].dim())
    correction = kwargs.get("correction")
    keepdim = kwargs.get("keepdim", False)
    center = _mean(mode, x, dims, True)
    d = noise.round_(x - center, 1.0, noise.flush_to_zero)
    t = total(mode, noise.round_(d * d), dims, keepdim)
    t = noise.round_(t.div_(max(_length(x, dims) - (1 if correction is None else correction), 0)), 2.0)
    if root:
        t = noise.round_function_(t.sqrt(), t, noise.precision.error("sqrt"))
    return t, center if keepdim or not dims else center.squeeze(dims)


def moments(root: bool, both: bool) -> Callable[..., Any]:
    """Rule of var, std, var_mean, std_mean (the correction overloads; the others are composites of them)."""

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pair = _moments(mode, args, kwargs, root)
        return wrap_all(mode, pair) if both else wrap(mode, pair[0])

    return rule


@rounds
def prod(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """prod: one rounding a factor, in any order."""
    x, dims, keepdim = _arguments(args, kwargs)
    t = x.clone()
    for d in sorted(dims, reverse=True):
        t = torch.prod(t, d, keepdim)
    n, noise = _length(x, dims), mode.noise
    if not x.is_floating_point() or n <= 1:
        return wrap(mode, in_dtype(t, kwargs))
    noise.reduces = True
    if not noise.adds_up(x.numel()):
        return wrap(mode, in_dtype(noise.round_(t, n - 1.0), kwargs))
    error = noise.measure(product_errors, noise.first_members(x), dims)
    if error is not None:
        error = (error if keepdim else error.squeeze(dims)) * noise.first_members(t)
    noise.round_(t, float(product_steps(torch.tensor(float(n)))))
    return wrap(mode, in_dtype(t if error is None else noise.add_error_(t, t.abs(), 0.0, sum_error=error), kwargs))


@rounds
def norm(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linalg_vector_norm(x, ord, dim, keepdim): from ordinary operations."""
    x, order = args[0], args[1] if len(args) > 1 else 2
    dim = args[2] if len(args) > 2 else None
    dims = [d - 1 for d in inner_dims(dim, x.dim())]
    keepdim = args[3] if len(args) > 3 else False
    with mode:
        if order in (float("inf"), float("-inf")):
            return x.abs().amax(dims, keepdim) if order > 0 else x.abs().amin(dims, keepdim)
        if order in (0, 1):
            return (x.abs() if order else (x != 0).to(x.dtype)).sum(dims, keepdim)
        if order == 2:
            return (x * x).sum(dims, keepdim).sqrt()
        return x.abs().pow(order).sum(dims, keepdim).pow(1.0 / order)


@rounds
def old_norm(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """aten::norm, whose order may be None."""
    order = args[1] if len(args) > 1 and args[1] is not None else 2
    return norm(mode, func, (args[0], order, *args[2:]), {})


@rounds
def nansum(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sum of what is a number."""
    x, dims, keepdim = _arguments(args, kwargs)
    return wrap(mode, total(mode, torch.where(torch.isnan(x), 0.0, x), dims, keepdim))


@rounds
def logsumexp(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """logsumexp(x, dim, keepdim) = log(sum(exp(x - max))) + max, with an infinite maximum left out."""
    x, dims = args[0], [d - 1 for d in inner_dims(args[1], args[0].dim())]
    keepdim = args[2] if len(args) > 2 else False
    with mode:
        top = greatest(x, dims)
        top = torch.where(top.abs() == float("inf"), torch.zeros_like(top), top)
        t = (x - top).exp().sum(dims, keepdim).log()
        return t + (top if keepdim or not dims else top.squeeze(dims))


@rounds
def cumulative(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cumsum and cumprod: of element i what these terms lose, or i sequential roundings where there are too many."""
    noise = mode.noise
    x = args[0].stacked if kwargs.get("dtype") is None else args[0].stacked.to(kwargs["dtype"])
    if args[0].dim() == 0:
        return wrap(mode, x.clone())
    dim = args[1] % args[0].dim() + 1
    t = in_dtype(func(x, dim), kwargs)
    if not t.is_floating_point():
        return wrap(mode, t)
    if func is aten.cumsum.default and noise.adds_up(x.numel()):
        size = x.abs().cumsum(dim)
        sum_error = noise.scan_error(x, dim)
        return wrap(mode, noise.add_error_(t, size, tree_steps(t.shape[dim]), sum_error=sum_error))
    before = torch.arange(t.shape[dim], dtype=t.dtype, device=t.device).view(-1, *(1,) * (t.dim() - dim - 1))
    if func is aten.cumsum.default:
        return wrap(mode, noise.add_error_(t, x.abs().cumsum(dim).mul_(before), 1.0, 0.0))
    if not noise.adds_up(x.numel()):
        return wrap(mode, noise.add_error_(t, t.abs().mul_(before), 1.0, 1.0))
    error = noise.measure(running_product_errors, noise.first_members(x), dim)
    error = None if error is None else error * noise.first_members(t)
    return wrap(mode, noise.add_error_(t, t.abs().mul_(product_steps(before + 1)), 1.0, 1.0, error))


@rounds
def logcumsumexp(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """logcumsumexp: of element i, i sequential roundings of a sum, which are absolute, or of its logarithm."""
    noise = mode.noise
    if not args[0].dim():
        return wrap(mode, args[0].stacked.clone())
    dim = inner_dims(args[1], args[0].dim())[0]
    t = func(args[0].stacked, dim)
    steps = t.new_tensor([rounding_steps(i + 1) for i in range(t.shape[dim])]).view(-1, *(1,) * (t.dim() - dim - 1))
    noise.add_working_error_(t, steps * t.abs().nan_to_num(0.0, 0.0, 0.0))
    noise.add_error_(t, (2.0 * steps + 4.0).expand_as(t).clone(), 1.0)
    return wrap(mode, noise.round_function_(t, None, noise.precision.error("log")))


def register() -> None:
    """State the rules of this module."""
    RULES.register(sum_, "sum.default", "sum.dim_IntList")
    RULES.register(mean, "mean.default", "mean.dim")
    RULES.register(prod, "prod.default", "prod.dim_int")
    RULES.register(norm, "linalg_vector_norm")
    RULES.register(old_norm, "norm.Scalar", "norm.ScalarOpt_dim")
    RULES.register(nansum, "nansum")
    RULES.register(logsumexp, "logsumexp.default")
    RULES.register(cumulative, "cumsum.default", "cumprod.default")
    RULES.register(logcumsumexp, "logcumsumexp.default")
    for root, name in enumerate(("var", "std")):
        RULES.register(moments(bool(root), False), f"{name}.correction")
        RULES.register(moments(bool(root), True), f"{name}_mean.correction")
