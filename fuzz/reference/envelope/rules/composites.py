"""Formulas of composite operations: each of their steps rounds. They are the stable ones in common use.

gelu is x*erfc(-x/sqrt 2)/2: a kernel that computes 1 + erf for deep negatives loses all digits, which is worth a
finding. The tanh form keeps its literal 1 + tanh: it is the approximation's definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fuzz.reference.envelope.ensemble import RULES

__all__ = ["FORMULAS", "FROM_TORCH", "register"]


def greatest(x: Tensor, dim: int | list[int]) -> Tensor:
    """The maximum over dims that stay, and 0 where there are no elements and so none."""
    return torch.amax(x, dim, True) if x.numel() else x.sum(dim, True)


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(x - max) / sum."""
    e = torch.exp(x - greatest(x, dim))
    return e / e.sum(dim, True)


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax whose fully masked rows are zero."""
    masked = (x == -math.inf).all(dim, True)
    return torch.where(masked, torch.zeros_like(x), softmax(x, dim, False))


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """(x - max) - log(sum(exp(x - max)))."""
    d = x - greatest(x, dim)
    return d - torch.log(torch.exp(d).sum(dim, True))


def softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """y * (g - sum(g*y))."""
    return y * (g - (g * y).sum(dim, True))


def log_softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """g - exp(y) * sum(g)."""
    return g - torch.exp(y) * g.sum(dim, True)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x*Phi(x)."""
    if approximate == "none":
        return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def gelu_backward(g: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    """g*(Phi(x) + x*phi(x)), or the derivative of the tanh form."""
    if approximate == "none":
        density = torch.exp(-0.5 * (x * x)) * (1 / math.sqrt(2 * math.pi))
        return g * (0.5 * torch.erfc(x * -math.sqrt(0.5)) + x * density)
    k = math.sqrt(2 / math.pi)
    t = torch.tanh(k * (x + 0.044715 * (x * x * x)))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (k * (1 + 3 * 0.044715 * (x * x))))


def sigmoid_backward(g: Tensor, y: Tensor) -> Tensor:
    """g*(1 - y)*y."""
    return g * (1 - y) * y


def tanh_backward(g: Tensor, y: Tensor) -> Tensor:
    """g*(1 - y^2)."""
    return g * (1 - y * y)


def silu(x: Tensor) -> Tensor:
    """x*sigmoid(x)."""
    return x * torch.sigmoid(x)


def silu_backward(g: Tensor, x: Tensor) -> Tensor:
    """g*s*(1 + x*(1 - s)), s = sigmoid(x)."""
    s = torch.sigmoid(x)
    return g * s * (1 + x * (1 - s))


def mish(x: Tensor) -> Tensor:
    """x*tanh(softplus(x))."""
    return x * torch.tanh(torch.nn.functional.softplus(x))


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log1p(exp(beta*x))/beta, and x itself beyond the threshold."""
    z = x * beta
    return torch.where(z > threshold, x, torch.log1p(torch.exp(z)) / beta)


def softplus_backward(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """g*sigmoid(beta*x), and g itself beyond the threshold."""
    z = x * beta
    return torch.where(z > threshold, g, g * torch.sigmoid(z))


def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log1p(exp(-|x|)); the second result is a buffer that only the backward reads."""
    return torch.clamp(x, max=0.0) - torch.log1p(torch.exp(-x.abs())), x.new_zeros((0,))


def log_sigmoid_backward(g: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """g*sigmoid(-x)."""
    return g * torch.sigmoid(-x)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale*x for x > 0, else scale*alpha*expm1(x*input_scale)."""
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


def celu(x: Tensor, alpha: float = 1) -> Tensor:
    """x for x > 0, else alpha*expm1(x/alpha)."""
    return elu(x, alpha, 1, 1 / alpha)


def elu_backward(g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, y: Tensor) -> Tensor:
    """The derivative of elu, from its result or from its argument."""
    if is_result:
        return torch.where(y <= 0, g * input_scale * (y + alpha * scale), g * scale)
    return torch.where(y <= 0, g * (input_scale * alpha * scale) * torch.exp(y * input_scale), g * scale)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x, or slope*x where x <= 0."""
    return torch.where(x > 0, x, x * slope)


def leaky_relu_backward(g: Tensor, x: Tensor, slope: float, is_result: bool) -> Tensor:
    """g, or slope*g."""
    return torch.where(x > 0, g, g * slope)


def hardsigmoid(x: Tensor) -> Tensor:
    """clamp(x + 3, 0, 6)/6."""
    return torch.clamp(x + 3, 0, 6) / 6


def hardsigmoid_backward(g: Tensor, x: Tensor) -> Tensor:
    """g/6 inside (-3, 3)."""
    return torch.where((x > -3) & (x < 3), g / 6, torch.zeros_like(g))


def hardswish(x: Tensor) -> Tensor:
    """x*clamp(x + 3, 0, 6)/6."""
    return x * torch.clamp(x + 3, 0, 6) / 6


HARDSWISH_CORNERS: tuple[float, ...] = tuple(
    torch.ops.aten.hardswish_backward(torch.ones(2), torch.tensor([-3.0, 3.0])).tolist()
)
"""The derivative of hardswish that the installed torch takes at -3 and 3, where there are two."""


def hardswish_backward(g: Tensor, x: Tensor) -> Tensor:
    """g*(x/3 + 1/2) between -3 and 3, g above, 0 below; at the corners what the installed torch takes."""
    low, high = HARDSWISH_CORNERS
    inside = torch.where(x < 3, g * (x / 3 + 0.5), torch.where(x == 3, g * high, g))
    return torch.where(x < -3, torch.zeros_like(g), torch.where(x == -3, g * low, inside))


def softshrink(x: Tensor, width: float = 0.5) -> Tensor:
    """x shrunk towards 0 by the width."""
    return torch.where(x > width, x - width, torch.where(x < -width, x + width, x * 0))


def hardshrink(x: Tensor, width: float = 0.5) -> Tensor:
    """x outside [-width, width]."""
    return torch.where((x >= -width) & (x <= width), torch.zeros_like(x), x)


def shrink_backward(g: Tensor, x: Tensor, width: float) -> Tensor:
    """g where the shrunk value is not zero."""
    return torch.where((x >= -width) & (x <= width), torch.zeros_like(g), g)


def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """x + value*a*b."""
    return x + (a * b if value == 1 else a * b * value)


def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """x + value*a/b."""
    return x + (a / b if value == 1 else a / b * value)


def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """x + weight*(end - x)."""
    y: Tensor = x + weight * (end - x)
    return y


def addr(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta*x + alpha*outer(a, b); with a beta of 0 whatever x holds does not count."""
    product = torch.outer(a, b) * alpha
    return x * beta + product if beta else product + torch.zeros_like(x)


def round_to_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """round(x*10^decimals)/10^decimals, in torch's order of operations."""
    power = 10.0 ** abs(decimals)
    return (x * power).round() / power if decimals >= 0 else (x / power).round() * power


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """max + log1p(exp(-|x - y|)); an infinite maximum as it is."""
    top = torch.maximum(x, y)
    return torch.where(top.abs() == math.inf, top, top + torch.log1p(torch.exp(-(x - y).abs())))


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """max + log2(1 + 2^-|x - y|); an infinite maximum as it is."""
    top = torch.maximum(x, y)
    return torch.where(top.abs() == math.inf, top, top + torch.log1p(torch.exp2(-(x - y).abs())) / math.log(2))


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """x with elements of the source at places in its flat order, or added there."""
    flat = x.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def masked_scatter_backward(g: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """The gradient of what is scattered: those of the places that the mask takes, and 0 for what is left over."""
    taken = g.masked_select(mask)
    return torch.cat([taken, taken.new_zeros(math.prod(sizes) - taken.numel())]).reshape(sizes)


def distances(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """The norm of each difference of a row of x and one of y; 0 without columns."""
    differences = x.unsqueeze(-2) - y.unsqueeze(-3)
    norms: Tensor = torch.linalg.vector_norm(differences, p, -1) if x.shape[-1] else differences.sum(-1)
    return norms


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x*log(y), 0 where x is 0."""
    return torch.where((x == 0) & ~torch.isnan(y), torch.zeros_like(x * y), x * torch.log(y))


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """x*log1p(y), 0 where x is 0."""
    return torch.where((x == 0) & ~torch.isnan(y), torch.zeros_like(x * y), x * torch.log1p(y))


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """First half times sigmoid of the second."""
    a, b = torch.chunk(x, 2, dim)
    return a * torch.sigmoid(b)


def glu_backward(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Gradients of both halves."""
    a, b = torch.chunk(x, 2, dim)
    s = torch.sigmoid(b)
    return torch.cat([g * s, g * a * s * (1 - s)], dim)


def trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    dims: list[int],
    unroll: int = 1,
) -> Tensor:
    """Sums of products of three: of the first two over the dims that the third lacks, and then of these with it."""
    parts = []
    for part, new in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in sorted(new):
            part = part.unsqueeze(dim)
        parts.append(part)
    lacking, others = ([dim for dim in dims if (dim in expand3) is lacks] for lacks in (True, False))
    pair = parts[0] * parts[1]
    pair = (pair.sum(lacking, keepdim=True) if lacking else pair) * parts[2]
    pair = pair.sum(others, keepdim=True) if others else pair
    for dim in sorted(dims, reverse=True):
        pair = pair.squeeze(dim)
    return pair


FORMULAS: dict[str, Callable[..., Any]] = {
    "_softmax": softmax, "_safe_softmax": safe_softmax, "_log_softmax": log_softmax,
    "_softmax_backward_data": softmax_backward,
    "_log_softmax_backward_data": log_softmax_backward, "gelu": gelu, "gelu_backward": gelu_backward,
    "sigmoid_backward": sigmoid_backward, "tanh_backward": tanh_backward, "silu": silu, "silu_backward": silu_backward,
    "mish": mish, "softplus": softplus, "softplus_backward": softplus_backward,
    "log_sigmoid_forward": log_sigmoid_forward, "log_sigmoid_backward": log_sigmoid_backward, "elu": elu,
    "softshrink": softshrink, "hardshrink": hardshrink,
    "softshrink_backward": shrink_backward, "hardshrink_backward": shrink_backward, "elu_backward": elu_backward,
    "celu": celu, "leaky_relu": leaky_relu, "leaky_relu_backward": leaky_relu_backward,
    "hardsigmoid": hardsigmoid, "hardsigmoid_backward": hardsigmoid_backward, "hardswish": hardswish,
    "hardswish_backward": hardswish_backward, "addcmul": addcmul, "addcdiv": addcdiv, "lerp": lerp, "addr": addr,
    "round.decimals": round_to_decimals, "logaddexp": logaddexp, "logaddexp2": logaddexp2, "put": put,
    "masked_scatter_backward": masked_scatter_backward,
    "_cdist_forward": distances, "xlogy.Tensor": xlogy,
    "special_xlog1py.default": xlog1py, "glu": glu,
    "glu_backward": glu_backward, "_trilinear": trilinear,
}  # fmt: skip

# Operations taken from torch's own decompositions, which are sums and products that need no care.
FROM_TORCH = (
    "mish_backward grid_sampler_2d _prelu_kernel _prelu_kernel_backward native_batch_norm native_batch_norm_backward "
    "_native_batch_norm_legit unfold_backward linalg_cross triu_indices tril_indices _euclidean_dist dist renorm trace "
    "_scaled_dot_product_flash_attention_for_cpu upsample_bilinear2d.vec logit logit_backward "
    "new_full narrow_copy special_entr rad2deg deg2rad alias_copy t_copy squeeze_copy transpose_copy unfold_copy "
    "unsqueeze_copy block_diag unsafe_split unsafe_split_with_sizes multi_margin_loss"
)


def register() -> None:
    """State the rules of this module."""
    RULES.register_formulas(FORMULAS)
    RULES.register_decompositions(*FROM_TORCH.split())
