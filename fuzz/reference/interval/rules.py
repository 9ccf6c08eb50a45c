"""Defines rules of interval arithmetic: the radius of a result, by the operands' radii and the operation's rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import Rule, added_matmul, aten, from_formula, handles_plain
from fuzz.reference.envelope.rules.composites import greatest
from fuzz.reference.interval.tensor import (
    RULES,
    UNIT,
    IntervalMode,
    IntervalTensor,
    Pair,
    keeps_format,
    make_tensor,
    require_float64,
    rounded,
)

__all__ = ["register"]

FUNCTION_ERROR = 16 * UNIT
"""Relative error of torch's elementary functions in float64, whose documented errors are below 4 units (SLEEF: 1)."""
Slope = Callable[[Tensor, Tensor, Tensor], Tensor]
"""slope(x, r, y): how far a function's value y of a number within r of x may be from that of x."""


def name_of(func: OpOverload) -> str:
    return str(func._schema.name.split("::")[1])


def additive(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """add, sub, rsub with their alpha."""
    alpha = float(kwargs.get("alpha", args[2] if len(args) > 2 else 1))
    x, y = mode.pair(args[0]), mode.pair(args[1])
    if name_of(func) == "rsub":
        x, y = y, x
    sign = 1.0 if name_of(func) == "add" else -1.0
    scaled = y.mid * alpha
    # A factor of 1 is exact; another one rounds, and so does the sum.
    loss = 0.0 if alpha in (1.0, -1.0) else UNIT * scaled.abs()
    return rounded(x.mid + sign * scaled, x.radius + abs(alpha) * y.radius + loss, x, y)


def multiply(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mul."""
    x, y = mode.pair(args[0]), mode.pair(args[1])
    return rounded(x.mid * y.mid, x.mid.abs() * y.radius + x.radius * (y.mid.abs() + y.radius), x, y)


def divide(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """div without a rounding mode. Nothing is known where the divisor may be 0."""
    if kwargs.get("rounding_mode") is not None:
        raise Unadjudicated(f"{func}: no interval rule for its rounding mode")
    x, y = mode.pair(args[0]), mode.pair(args[1])
    quotient, least = x.mid / y.mid, y.mid.abs() - y.radius
    radius = torch.where(least > 0, (x.radius + quotient.abs() * y.radius) / least, torch.inf)
    return rounded(quotient, radius, x, y)


def apply_function(slope: Slope, error: float = FUNCTION_ERROR) -> Rule:
    """The rule of a function of one number."""

    def rule(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = mode.pair(args[0])
        y = func(x.mid, *args[1:], **kwargs)
        radius = torch.where(x.radius > 0, slope(x.mid, x.radius, y), 0.0)
        return rounded(y, radius, x, error=error)

    return rule


def by_growth(power: float) -> Slope:
    """Of a positive power of a positive number, or the inverse of one: y*((1 - r/x)^-|power| - 1)."""

    def slope(x: Tensor, r: Tensor, y: Tensor) -> Tensor:
        grown = y.abs() * torch.expm1(-abs(power) * torch.log1p(-r / x.abs()))
        return torch.where(r < x.abs(), grown, torch.inf)

    return slope


def by_logarithm(scale: float, shift: float = 0.0) -> Slope:
    """Of scale*log(shift + x)."""
    return lambda x, r, y: torch.where(r < x + shift, -scale * torch.log1p(-r / (x + shift)), torch.inf)


def by_density(scale: float) -> Slope:
    """Of the integral of scale*exp(-x^2)."""
    return lambda x, r, y: r * scale * torch.exp(-((x.abs() - r).clamp(min=0) ** 2))


SLOPES: dict[str, Slope] = {
    "exp": lambda x, r, y: y * torch.expm1(r), "exp2": lambda x, r, y: y * torch.expm1(r * math.log(2)),
    "expm1": lambda x, r, y: torch.exp(x) * torch.expm1(r),
    "log": by_logarithm(1), "log2": by_logarithm(1 / math.log(2)), "log10": by_logarithm(1 / math.log(10)),
    "log1p": by_logarithm(1, 1.0), "sqrt": by_growth(0.5), "rsqrt": by_growth(0.5), "reciprocal": by_growth(1),
    "tanh": lambda x, r, y: r * torch.exp(-2 * (x.abs() - r)).mul(4).clamp(max=1),
    "sigmoid": lambda x, r, y: r * torch.exp(-(x.abs() - r)).clamp(max=0.25),
    "erf": by_density(2 / math.sqrt(math.pi)), "erfc": by_density(2 / math.sqrt(math.pi)),
    **dict.fromkeys(("sin", "cos", "atan", "asinh"), lambda x, r, y: r),
}  # fmt: skip
EXACT_SLOPES: dict[str, Slope] = dict.fromkeys(("neg", "abs", "positive", "relu", "hardtanh"), lambda x, r, y: r)
"""Functions that are not rounded, and move no number further than their argument is."""


def square(x: Tensor) -> Tensor:
    return x * x


def threshold(x: Tensor, limit: float, value: float) -> Tensor:
    return torch.where(x > limit, x, value)


def power(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """pow with a scalar exponent."""
    x, exponent = args
    if isinstance(exponent, Tensor) or type(x) is not IntervalTensor:
        raise Unadjudicated(f"{func}: no interval rule for an exponent that is a tensor")
    if exponent == 2:
        with mode:
            return x * x
    given, whole = mode.pair(x), float(exponent).is_integer() and exponent > 0
    y = given.mid**exponent
    if whole:
        most = (given.mid.abs() + given.radius) ** exponent
        return rounded(y, most - y.abs() + 2 * FUNCTION_ERROR * most, given, error=FUNCTION_ERROR)
    radius = torch.where(given.radius > 0, by_growth(float(exponent))(given.mid, given.radius, y), 0.0)
    return rounded(y, radius, given, error=FUNCTION_ERROR)


def step(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """floor, ceil, round, trunc, sign: what both ends of an interval give."""
    x = mode.pair(args[0])
    low, high = (func(end, *args[1:], **kwargs) for end in (x.mid - x.radius, x.mid + x.radius))
    return make_tensor(Pair((low + high) / 2, (high - low) / 2))


def bounded(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """maximum, minimum, clamp: no further from the result than the furthest operand is from its midpoint."""
    operands = [mode.pair(one) for one in (*args, *kwargs.values()) if one is not None]
    mids = [None if one is None else mode.pair(one).mid for one in args]
    mid = func(*_scalars(args, mids), **{name: _scalar(one, mode) for name, one in kwargs.items()})
    radius = reduce(torch.maximum, (one.radius for one in operands))
    return make_tensor(Pair(mid, radius.broadcast_to(mid.shape).clone()))


def _scalars(args: tuple[Any, ...], mids: list[Any]) -> list[Any]:
    """The arguments, with midpoints in the place of tensors only: overloads with scalars keep theirs."""
    return [mid if isinstance(given, Tensor) else given for given, mid in zip(args, mids, strict=True)]


def _scalar(value: Any, mode: IntervalMode) -> Any:
    return mode.pair(value).mid if isinstance(value, Tensor) else value


@keeps_format
def compare(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """eq, lt and the like, where intervals do not touch or are exact. A narrower format may not hold a scalar."""
    if isinstance(args[1], float) and args[1] not in (0.0, math.inf, -math.inf):
        require_float64(func, [args[0]])
    x, y = mode.pair(args[0]), mode.pair(args[1])
    require((x.radius + y.radius == 0) | ((x.mid - y.mid).abs() > x.radius + y.radius) | _infinite(x, y))
    return getattr(aten, name_of(func))(x.mid, y.mid)


def _infinite(x: Pair, y: Pair) -> Tensor:
    """Where one side is exactly infinite or NaN, and the other known to be finite."""
    return ~(torch.isfinite(x.mid) & torch.isfinite(y.mid)) & torch.isfinite(x.radius + y.radius)


def require(known: Tensor) -> None:
    """Raise `Unadjudicated` unless all of it is known."""
    if not bool(known.all()):
        raise Unadjudicated("two numbers are too close to compare in float64")


@keeps_format
def classify(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """isnan, isinf, isfinite."""
    x = mode.pair(args[0])
    require(torch.isfinite(x.radius))
    return func(x.mid)


def total(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sum, mean, cumsum: n*u times the sum of magnitudes, in whatever order they are added up."""
    kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}
    x, rest = mode.pair(args[0]), args[1:]
    mid, size = func(x.mid, *rest, **kwargs), func(x.mid.abs(), *rest, **kwargs)
    terms = max(x.mid.numel() // max(mid.numel(), 1), 2) if name_of(func) != "cumsum" else max(x.mid.numel(), 2)
    return rounded(mid, func(x.radius, *rest, **kwargs) + (terms + 1) * UNIT * size)


def prod(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """prod, cumprod."""
    x, rest = mode.pair(args[0]), args[1:]
    mid, most = func(x.mid, *rest), func(x.mid.abs() + x.radius, *rest)
    return rounded(mid, most - mid.abs() + 4 * (x.mid.numel() + 1) * UNIT * most)


def extreme(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """amax, amin, max, min, with indices where these are certain."""
    x, rest = mode.pair(args[0]), args[1:]
    mid = func(x.mid, *rest, **kwargs)
    if isinstance(mid, Tensor):
        widest = aten.amax.default(x.radius, *(rest if name_of(func) in ("amax", "amin") else ()), **kwargs)
        return make_tensor(Pair(mid, widest))
    require_winner(x, rest[0], name_of(func) == "max")
    return make_tensor(Pair(mid[0], aten.amax.default(x.radius, *([rest[0]], *rest[1:]), **kwargs))), mid[1]


def argument_of_extreme(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """argmax, argmin, where the winner is certain."""
    x, dim = mode.pair(args[0]), args[1] if len(args) > 1 else kwargs.get("dim")
    flat = Pair(x.mid.reshape(-1), x.radius.reshape(-1)) if dim is None else x
    require_winner(flat, -1 if dim is None else dim, name_of(func) == "argmax")
    return func(x.mid, *args[1:], **kwargs)


def require_winner(x: Pair, dim: int, largest: bool) -> None:
    """Raise `Unadjudicated` unless the extremes along a dim are known to be it, or all numbers are exact."""
    if not bool(x.radius.any()) or not x.mid.dim() or x.mid.shape[dim] < 2:
        return
    ends = x.mid - x.radius if largest else -x.mid - x.radius
    best = ends.amax(dim, keepdim=True)
    reach = x.mid + x.radius if largest else -x.mid + x.radius
    require((reach >= best).sum(dim) == 1)


def ordered(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sort, topk: values are no further off than the furthest of their row, indices are known of exact numbers only."""
    x = mode.pair(args[0])
    require(x.radius == 0)
    values, indices = func(x.mid, *args[1:], **kwargs)
    return make_tensor(Pair(values, torch.zeros_like(values))), indices


def max_pool(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """max_pool2d and 3d with indices, which only the backward reads: that has no rule."""
    x = mode.pair(args[0])
    mid, indices = func(x.mid, *args[1:], **kwargs)
    return make_tensor(Pair(mid, func(x.radius, *args[1:], **kwargs)[0])), indices


def bilinear(terms: Callable[[Tensor, Tensor], int]) -> Rule:
    """The rule of an operation linear in each of its first two operands, and in a bias where it has a third one."""

    def rule(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        a, b = mode.pair(args[0]), mode.pair(args[1])
        has_bias = len(args) > 2 and isinstance(args[2], Tensor)
        rest = (None, *args[3:]) if has_bias else args[2:]
        mid, size = func(a.mid, b.mid, *rest), func(a.mid.abs(), b.mid.abs(), *rest)
        error = 2 * (terms(a.mid, b.mid) + 2) * UNIT * size
        if bool(a.radius.any()):
            error = error + func(a.radius, b.mid.abs() + b.radius, *rest)
        if bool(b.radius.any()):
            error = error + func(a.mid.abs(), b.radius, *rest)
        product = rounded(mid, error)
        if not has_bias:
            return product
        with mode:
            return product + args[2].reshape(-1, *[1] * (mid.dim() - 2))

    return rule


def inner_size(a: Tensor, b: Tensor) -> int:
    """Products in an element of a matrix product."""
    return a.shape[-1]


def kernel_size(x: Tensor, weight: Tensor) -> int:
    """At least the products in an element of a convolution, transposed or not."""
    return weight.numel()


def linear(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Averages, interpolation, sums at indices: what is linear in all floating operands together.

    Weights are not negative, but for a factor `alpha`, whose size counts for radii.
    """
    sizes = {name: abs(value) if name == "alpha" else value for name, value in kwargs.items()}
    pairs = [mode.pair(one) if isinstance(one, Tensor) and one.is_floating_point() else None for one in args]

    def call(part: Callable[[Pair], Tensor], options: dict[str, Any] = sizes) -> Tensor:
        given = [one if pair is None else part(pair) for one, pair in zip(args, pairs, strict=True)]
        result: Tensor = func(*given, **options)
        return result

    terms = sum(pair.mid.numel() for pair in pairs if pair is not None)
    mid, size = call(lambda pair: pair.mid, kwargs), call(lambda pair: pair.mid.abs())
    return rounded(mid, call(lambda pair: pair.radius) + 2 * (terms + 4) * UNIT * size)


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    top = greatest(x, dim)
    y = torch.log(torch.exp(x - top).sum(dim, True)) + top
    return y if keepdim else y.squeeze(tuple(dim))


@keeps_format
def item(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()` of a number that is known."""
    x = mode.pair(args[0])
    require(x.radius == 0)
    return x.mid.item()


@handles_plain
def refuse_drawing(mode: IntervalMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise Unadjudicated(f"{func}: it draws at random")


def register() -> None:
    """State the rules of this module."""
    from fuzz.reference.exact.rules.reductions import moments, nansum, norm, old_norm

    RULES.register(additive, "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
    RULES.register(multiply, "mul.Tensor", "mul.Scalar")
    RULES.register(divide, "div", "true_divide")
    for name, slope in SLOPES.items():
        RULES.register(apply_function(slope), name)
    for name, slope in EXACT_SLOPES.items():
        RULES.register(apply_function(slope, 0.0), name)
    RULES.register(from_formula(square), "square")
    RULES.register(from_formula(threshold), "threshold")
    RULES.register(power, "pow.Tensor_Scalar")
    RULES.register(step, "floor", "ceil", "round.default", "trunc", "sign", "sgn")
    RULES.register(bounded, "maximum", "minimum", "clamp", "clamp_min", "clamp_max")
    RULES.register(compare, *"eq ne lt le gt ge".split())
    RULES.register(classify, *"isnan isinf isfinite".split())
    RULES.register(total, "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default")
    RULES.register(prod, "prod.default", "prod.dim_int", "cumprod.default")
    RULES.register(extreme, "amax", "amin", "max.default", "max.dim", "min.default", "min.dim")
    RULES.register(argument_of_extreme, "argmax", "argmin")
    RULES.register(ordered, "sort.default", "sort.stable", "topk")
    RULES.register(max_pool, "max_pool2d_with_indices", "max_pool3d_with_indices")
    RULES.register(bilinear(inner_size), "mm.default", "bmm.default", "mv.default", "dot.default")
    RULES.register(bilinear(kernel_size), "convolution.default")
    RULES.register(added_matmul, "addmm.default", "addmv.default", "addbmm.default", "baddbmm.default")
    RULES.register(linear, *LINEAR.split())
    RULES.register(item, "_local_scalar_dense", "item")
    RULES.register(from_formula(logsumexp), "logsumexp.default")
    RULES.register(from_formula(norm), "linalg_vector_norm")
    RULES.register(from_formula(old_norm), "norm.Scalar", "norm.ScalarOpt_dim")
    RULES.register(from_formula(nansum), "nansum")
    for root, name in enumerate(("var", "std")):
        RULES.register(moments(bool(root), False), f"{name}.correction")
        RULES.register(moments(bool(root), True), f"{name}_mean.correction")


LINEAR = (
    "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_bilinear2d upsample_linear1d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d col2im index_add.default "
    "scatter_add.default"
)
