"""Defines rules of functions that kernels compute by another formula as a rule, whose error is absolute.

sinh is (exp(x) - exp(-x))/2, asinh and atanh logarithms of sums, softplus log(1 + exp(x)), logaddexp that of a
difference, elu exp(x) - 1, hardsigmoid x/6 + 1/2: where the result is small they lose digits that another formula
keeps, as tanh does (saturation.py). A reference that calls log1p or expm1 itself asks for these digits. So does log
sigmoid: it is a log probability, and what is small in it is the probability of the other outcome.

Binary cross entropy of a probability has log(1 - p), that of a logit is max(x, 0) - x*y + log1p(exp(-|x|)) as well.
lerp is (1 - w)*x + w*y, and acosh log(x + sqrt(x*x - 1)). asinh is odd: log(x + sqrt(x*x + 1)) has no digit left where
x is -5000.

Batch norm of known statistics is x*a + b with a and b for each channel, as PyTorch's own kernel computes it, which
rounds at the size of x and of the mean.

sinc is sin(pi*x)/(pi*x), which is not 0 at whole numbers where pi is rounded.

Log softmax is x - logsumexp(x). The gradient of softmax subtracts the sum of do*o where it is part of attention (Dao et
al., 2022, algorithm 4), which is that of y*g but for its rounding: where a query sees one key, the gradient is 0 from
the one and a rounding from the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import rounds
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, align, unwrap, wrap
from fuzz.reference.envelope.rules.composites import FORMULAS
from fuzz.reference.envelope.rules.norms_and_losses import (
    MEAN,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    reduced,
)
from fuzz.reference.envelope.rules.saturation import NEAR, unit

__all__ = ["register"]


@rounds
def sinc(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sinc: its own error, and that of sin(pi*x)/(pi*x) by a rounded pi and a rounded product, whose sine is not 0."""
    noise, x = mode.noise, args[0].stacked
    t = noise.round_function_(func(x), x, noise.precision.error("sinc"))
    if t.is_floating_point():
        u, angle = noise.precision.u, (x.double() * math.pi).abs()
        off = 2 * u * angle
        error = (angle.cos().abs() * off + off.square() / 2).clamp(max=2.0) / angle
        noise.add_working_error_(t, error.div_(u).nan_to_num_(0.0))
    return wrap(mode, t)


@rounds
def acosh(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """acosh: its own error, and that of log(x + sqrt(x*x - 1)): of x*x, whose root is small near 1, and of the sum."""
    noise, x = mode.noise, args[0].stacked
    t = noise.round_function_(func(x), x, noise.precision.error("acosh"))
    if t.is_floating_point():
        # By s = sqrt(x^2 - 1) the sum is off by x^2/(2s) roundings, and so its logarithm by that over x + s.
        inverse = x / torch.sqrt(x * x - 1)
        error = torch.where(x > 1, 1 + inverse / (2 + 2 / inverse), 0.0)
        noise.add_working_error_(t, error.nan_to_num(1.0, 1.0, 1.0))
    return wrap(mode, t)


def hyperbolic(name: str) -> Callable[..., Any]:
    """Rule of sinh, asinh or atanh: its documented error, and what exponentials and sums of numbers near 1 lose."""

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        noise, x = mode.noise, args[0].stacked
        t = noise.round_function_(func(x), x, noise.precision.error(name))
        if t.is_floating_point():
            exp = noise.precision.error("exp")
            near_one = (2 * exp.base + 2 * exp.slope * x.abs()) * x.cosh() if name == "sinh" else torch.ones_like(t)
            noise.add_working_error_(t, near_one.nan_to_num_(0.0, 0.0, 0.0))
        return wrap(mode, t)

    return rule


@rounds
def cross_entropy(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """binary_cross_entropy: log(1 - p) loses by the difference what log1p(-p) keeps, (1 - y) times."""
    x, y, weight, reduction = args + (None, MEAN)[len(args) - 2 :]
    with mode:
        loss: Any = binary_cross_entropy(x, y, None, 0)
    label = align((x, y), mode.noise.rows)[1]
    mode.noise.add_working_error_(loss.stacked, (1 - label).abs().nan_to_num(0.0, 0.0, 0.0).expand_as(loss.stacked))
    with mode:
        return reduced(loss if weight is None else loss * weight, reduction)


@rounds
def cross_entropy_with_logits(
    mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """binary_cross_entropy_with_logits: max(x, 0) - x*y rounds at |x|, where (1 - y)*x may be far smaller."""
    x, y, weight, positive, reduction = args + (None, None, MEAN)[len(args) - 2 :]
    with mode:
        loss: Any = binary_cross_entropy_with_logits(x, y, None, positive, 0)
    logit, label = align((x, y), mode.noise.rows)
    size = torch.where(logit > 0, logit * (1 + label.abs()), 0.0).nan_to_num(0.0, 0.0, 0.0)
    mode.noise.add_working_error_(loss.stacked, size.expand_as(loss.stacked))
    with mode:
        return reduced(loss if weight is None else loss * weight, reduction)


@rounds
def lerp(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """lerp: x + w*(end - x), or (1 - w)*x + w*end."""
    with mode:
        out = FORMULAS["lerp"](*args)
    x, end, weight = align(args, mode.noise.rows)
    weight = torch.as_tensor(weight)
    size = (1 - weight).abs() * x.abs() + weight.abs() * end.abs()
    mode.noise.add_working_error_(out.stacked, size.nan_to_num(0.0, 0.0, 0.0).expand_as(out.stacked))
    return out


@rounds
def batch_norm(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Batch norm. That of known statistics: (x - mean)*a + bias, or x*a + (bias - mean*a), with a = weight*rstd."""
    from torch._decomp import decomposition_table

    with mode:
        out = decomposition_table[func](*args, **kwargs)
    given = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    if not given.get("training", False):
        x, mean, variance = (unwrap(mode.lift(given[name])) for name in ("input", "running_mean", "running_var"))
        scale = torch.rsqrt(variance + given["eps"])
        scale = scale if given["weight"] is None else scale * unwrap(mode.lift(given["weight"]))
        channels = len(mean), 1, mean.shape[1], *(1,) * (x.dim() - 3)
        size = (x.abs() + mean.abs().view(channels)) * scale.abs().view(channels)
        mode.noise.add_working_error_(out[0].stacked, size.nan_to_num(0.0, 0.0, 0.0))
    return out


def with_error(name: str, size: Callable[[Tensor, dict[str, Any]], Tensor], **defaults: Any) -> Callable[..., Any]:
    """Rule of a composite whose other formula rounds a larger number: by u times `size` of argument and options."""
    formula, names = FORMULAS[name], tuple(defaults)

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            out = formula(*args, **kwargs)
        options = {**defaults, **dict(zip(names, args[1:], strict=False)), **kwargs, "unit": unit(mode.noise)}
        found = out if not isinstance(out, tuple) else out[0]
        off = size(unwrap(args[0]), options).to(found.stacked.device)
        mode.noise.add_working_error_(found.stacked, off.expand_as(found.stacked))
        return out

    return rule


@rounds
def softmax_backward(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """y * (g - sum(g*y)), where the sum may be of another evaluation of g."""
    g, y, dim = args[:3]
    other = g
    if type(g) is EnsembleTensor:
        other = wrap(mode, mode.noise.from_other_members(g.stacked))
        other.is_reduced = g.is_reduced
    with mode:
        return y * (g - (other * y).sum(dim, True))


def _log_softmax(x: Tensor, options: dict[str, Any]) -> Tensor:
    """The logarithm of the sum of exponentials."""
    dim = options["dim"]
    if x.dim() == 1:  # members of a number, whose only share is 1
        return torch.zeros_like(x)
    return torch.logsumexp(x, dim + 1 if dim >= 0 else dim, keepdim=True).nan_to_num(0.0, 0.0, 0.0).abs().expand_as(x)


def _softplus(x: Tensor, options: dict[str, Any]) -> Tensor:
    """1/beta below the threshold, less where 1 + exp(beta*x) is 1: what is lost there is the result."""
    z = x * options["beta"]
    lost = (torch.exp(z) * (NEAR / options["unit"])).clamp(max=1.0).nan_to_num(0.0)
    return torch.where(z > options["threshold"], 0.0, lost / abs(options["beta"] or math.inf))


def _elu(x: Tensor, options: dict[str, Any]) -> Tensor:
    """The factor of exp(x) - 1, and the error of an exponential near 1."""
    return torch.where(x > 0, 0.0, 2 * abs(options["alpha"] * options.get("scale", 1)))


def _hardsigmoid(x: Tensor, options: dict[str, Any]) -> Tensor:
    """1/2 where it is neither 0 nor 1."""
    return torch.where((x > -3) & (x < 3), 0.5, 0.0)


def _hardswish(x: Tensor, options: dict[str, Any]) -> Tensor:
    """x times that of hardsigmoid."""
    return torch.where((x > -3) & (x < 3), 0.5 * x.abs(), 0.0)


def _logaddexp(x: Tensor, options: dict[str, Any]) -> Tensor:
    """The logarithm of a sum of 1 and less, also to the base of 2."""
    return torch.tensor(1 / math.log(2), dtype=torch.float64)


def register() -> None:
    """State the rules of this module, in place of those with relative errors alone."""
    for name in ("sinh", "asinh", "atanh"):
        RULES.register(hyperbolic(name), name)
    RULES.register(acosh, "acosh")
    RULES.register(cross_entropy, "binary_cross_entropy")
    RULES.register(cross_entropy_with_logits, "binary_cross_entropy_with_logits")
    RULES.register(lerp, "lerp")
    RULES.register(with_error("hardsigmoid", _hardsigmoid), "hardsigmoid")
    RULES.register(with_error("hardswish", _hardswish), "hardswish")
    RULES.register(with_error("logaddexp", _logaddexp), "logaddexp")
    RULES.register(with_error("logaddexp2", _logaddexp), "logaddexp2")
    for name in ("native_batch_norm", "_native_batch_norm_legit.default"):
        RULES.register(batch_norm, name)
    RULES.register(sinc, "sinc")
    RULES.register(softmax_backward, "_softmax_backward_data")
    RULES.register(with_error("_log_softmax", _log_softmax, dim=-1), "_log_softmax")
    RULES.register(with_error("softplus", _softplus, beta=1.0, threshold=20.0), "softplus")
    RULES.register(with_error("elu", _elu, alpha=1.0, scale=1.0, input_scale=1.0), "elu")
    RULES.register(with_error("celu", _elu, alpha=1.0), "celu")
