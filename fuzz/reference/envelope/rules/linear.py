"""Defines rules of matrix products and other linear operations: they are perturbed by the sum of |products|."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import added_matmul, rounds
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, map_members, unwrap, wrap, wrap_all
from fuzz.reference.envelope.noise import MemberNoise
from fuzz.reference.envelope.rules.elementwise import begin_with
from fuzz.reference.envelope.rules.reductions import total
from fuzz.reference.envelope.summation import matmul_errors, rounding_steps, tree_steps
from fuzz.reference.envelope.unfolding import Convolution, UnfoldedProduct

__all__ = ["absolute", "register", "wrap_stacked"]

TF32 = 2.0**-10
"""Error of tf32's 10 stored bits, of each operand of a product: tensor cores cut the other bits off, unrounded."""


CUTTING = 10
"""One member in so many has operands of tf32 cut off as tensor cores do."""
HALF = 2.0**-14
"""The smallest normal number of float16; its subnormal ones are multiples of 2^-24."""


def multiply(mode: EnsembleMode, a: Any, b: Any) -> Tensor:
    """Stacked (..., M, K) @ (..., K, N), perturbed as sums of the products are, and for the products' own roundings.

    Tensor cores, and products too large to be added up: (rounding_steps(K) + 1) u sum|products|, or twice that.
    """
    noise = mode.noise
    t = torch.matmul(a, b)
    k = a.shape[-1]
    if k == 0 or not t.is_floating_point():
        return t
    if noise.precision.nan_below:
        noise.mark_underflow_(t, _magnitude_or_inf(a).amin(-1, True) * _magnitude_or_inf(b).amin(-2, True))
    adds_up = k > 1 and noise.adds_up(t.numel() * k, is_product=True)
    if k == 1:
        noise.round_(t)
        factor = 0.0
    elif adds_up:
        factor = tree_steps(k) + 1
    else:
        factor = (rounding_steps(k) + 1) * (2 if noise.precision.tensor_cores else 1)
    if lost := cut_off(noise):
        factor += lost
        cut_some_(noise, t, a, b)
    size = _aligned_magnitude if noise.precision.tensor_cores else torch.abs
    if not factor:
        return t
    sum_error = noise.matmul_error(a, b) if adds_up else None
    return noise.add_error_(t, torch.matmul(size(a), size(b)), factor, float(k), sum_error)


def cut_off(noise: MemberNoise) -> float:
    """What products lose, in units of u, where tensor cores cut off the bits of float32 operands that tf32 lacks."""
    return 2 * TF32 / noise.precision.u if noise.precision.dot == "tf32" and noise.precision.u == 2.0**-24 else 0.0


def cut_some_(noise: MemberNoise, t: Tensor, a: Tensor, b: Tensor) -> None:
    """Make the stacked product t of matrices in some members what tensor cores make of it.

    What they cut off has the sign of the operand. In a sum over many products, of absolute values or of few
    magnitudes, such errors add up, and random ones average out.
    """
    if rows := cutting_rows(noise):
        t[rows] = torch.matmul(_cut(a[rows]), _cut(b[rows]))


def cut_operands(mode: EnsembleMode, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Arguments for `map_members` of which the first `count` are cut off in the same members."""
    rows = cutting_rows(mode.noise)
    if not (rows and cut_off(mode.noise)):
        return args
    operands = [_stacked(mode, operand).clone() for operand in args[:count]]
    for operand in operands:
        operand[rows] = _cut(operand[rows])
    return (*map(wrap_stacked, operands), *args[count:])


def cutting_rows(noise: MemberNoise) -> list[int]:
    """The rows of the members that cut off operands of tf32."""
    return noise.rows_of([row for row in noise.step_rows if noise.ids[row - 1] % CUTTING == 0])


def _cut(x: Tensor) -> Tensor:
    """float64 numbers without the bits that tf32 has no place for."""
    return (x.contiguous().view(torch.int64) & -(1 << 42)).view(torch.float64)


def _magnitude_or_inf(x: Tensor) -> Tensor:
    """|x|, infinite where it is 0."""
    return torch.where(x == 0, torch.inf, x.abs())


def _aligned_magnitude(x: Tensor) -> Tensor:
    """|x| as tensor cores align products: by exponents as stored, where a subnormal has that of the smallest normal.

    What they cut off is a part of the largest of those, whether products cancel or are small by their digits.
    """
    size = x.abs()
    half = (size < HALF) & (size * 2.0**24 == (size * 2.0**24).round())
    return torch.where(size == 0, 0.0, torch.where(half, HALF, size.clamp(min=2.0**-126)))


def _stacked(mode: EnsembleMode, x: Any) -> Tensor:
    """The stacked tensor of an operand; a plain one is the same in all rows."""
    t: Tensor = x.stacked if type(x) is EnsembleTensor else x.expand(mode.noise.rows, *x.shape)
    return t


@rounds
def matmul(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm and bmm."""
    a, b = _stacked(mode, args[0]), _stacked(mode, args[1])
    return mode.mark_dot(wrap(mode, multiply(mode, a, b)), a.shape[-1])


@rounds
def matrix_vector(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mv."""
    t = multiply(mode, _stacked(mode, args[0]), _stacked(mode, args[1]).unsqueeze(-1))
    return mode.mark_dot(wrap(mode, t.squeeze(-1)), args[1].shape[-1])


@rounds
def dot(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """dot, vdot."""
    a, b = _stacked(mode, args[0]).unsqueeze(-2), _stacked(mode, args[1]).unsqueeze(-1)
    return mode.mark_dot(wrap(mode, multiply(mode, a, b).squeeze(-1).squeeze(-1)), a.shape[-1])


@rounds
def add_product(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm, addmv, addbmm, baddbmm: a matrix product and an addition."""
    return added_matmul(mode, func, args, kwargs)


def absolute(x: Any) -> Any:
    """Absolute values of every floating tensor of an argument list."""
    if isinstance(x, tuple | list):
        return type(x)(absolute(v) for v in x)
    if type(x) is EnsembleTensor:
        return wrap_stacked(x.stacked.abs() if x.stacked.is_floating_point() else x.stacked)
    return x.abs() if isinstance(x, Tensor) and x.is_floating_point() else x


def wrap_stacked(t: Tensor) -> EnsembleTensor:
    """An EnsembleTensor as an argument of `map_members`, without a check of its size."""
    e: Any = Tensor._make_wrapper_subclass(EnsembleTensor, t.shape[1:], dtype=t.dtype, device=t.device)
    e.stacked = t
    return e  # type: ignore[no-any-return]


def convolution_terms(args: tuple[Any, ...]) -> int:
    """Products in an output element of convolution(input, weight, bias, stride, padding, dilation, transposed,
    output_padding, groups): channels of a group times the kernel's size.
    """
    weight, transposed, groups = args[1], args[6], args[8]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    return max(int(channels) * int(math.prod(weight.shape[2:])), 2)


def convolution_gradient_terms(args: tuple[Any, ...]) -> tuple[int, int]:
    """Products in an element of the gradients of input and weight of convolution_backward(g, input, weight, sizes of
    the bias, stride, padding, dilation, transposed, output_padding, groups, ..).
    """
    g, x, weight, transposed, groups = args[0], args[1], args[2], args[7], args[9]
    channels = weight.shape[1] if transposed else weight.shape[0] // groups
    positions = math.prod((x if transposed else g).shape[2:])
    of_input = int(channels * math.prod(weight.shape[2:]))
    return max(of_input, 2), max(int(x.shape[0] * positions), 2)


def pool_terms(window: int, dims: int) -> Any:
    """Terms in an element of a pool by averages over `dims`, of which an argument is the window, or of its gradient."""

    def count(args: tuple[Any, ...]) -> int:
        sizes = args[window] if isinstance(args[window], Sequence) else [args[window]]
        return int(math.prod(sizes) if len(sizes) == dims else sizes[0] ** dims)

    return count


def adaptive_terms(args: tuple[Any, ...]) -> int:
    """Terms in an element of _adaptive_avg_pool(x, sizes), or of its gradient of (g, x)."""
    other = args[1].shape if isinstance(args[1], Tensor) else args[1]
    spatial = len(args[1]) if not isinstance(args[1], Tensor) else args[0].dim() - 1
    pairs = list(zip(reversed(args[0].shape), reversed(other), strict=False))[:spatial]
    return math.prod(int(-(-max(pair) // max(min(pair), 1)) + 1) for pair in pairs)


def apply_linear(count: Any) -> Any:
    """Rule of an operation linear in its floating operands together; `count` says how many terms an element adds up."""

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t, size = (map_members(mode, func, given, kwargs) for given in (args, absolute(args)))
        n = count(args)
        return wrap(mode, mode.noise.add_error_(t, size, rounding_steps(n) + 1, n))

    return rule


@rounds
def convolution(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """convolution(input, weight, bias, ..): as products of matrices, and the bias as what is added to one."""
    (x, weight, bias), transposed = args[:3], args[6]
    t, size = (map_members(mode, func, given, kwargs) for given in (cut_operands(mode, args, 2), absolute(args)))
    n, layout = convolution_terms(args), layout_of(args[3:6], args[8], x.dim() - 2)
    unfold = layout.transposed if transposed else layout.product
    t = perturb_products(mode, t, size, n, lambda: unfold(_first(mode, x), _first(mode, weight), t.shape[3:]))
    if bias is not None and mode.noise.adds_up(t.numel() * n, is_product=True):
        begin_with(mode, t, _stacked(mode, bias).view(-1, 1, bias.numel(), *(1,) * (x.dim() - 2)), n)
    return wrap(mode, t)


@rounds
def convolution_backward(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """convolution_backward(g, input, weight, ..): gradients of both as products of matrices, of the bias as a sum."""
    (g, x, weight), transposed = args[:3], args[7]
    results, sizes = (map_members(mode, func, given, kwargs) for given in (cut_operands(mode, args, 3), absolute(args)))
    layout = layout_of(args[4:7], args[9], g.dim() - 2)
    read, of = (g, x) if transposed else (x, g)
    of_input = layout.product if transposed else layout.transposed
    unfoldings: list[Callable[[], UnfoldedProduct]] = [
        lambda: of_input(_first(mode, g), _first(mode, weight), x.shape[2:]),
        lambda: layout.of_weight(_first(mode, of), _first(mode, read), weight.shape[2:]),
    ]
    parts = zip(results, sizes, convolution_gradient_terms(args), unfoldings, strict=False)
    found = [None if part[0] is None else perturb_products(mode, *part) for part in parts]
    if results[2] is not None:
        found.append(total(mode, _stacked(mode, g), [1, *range(3, 1 + g.dim())], False))
    return wrap_all(mode, (*found, None)[:3])


def layout_of(sizes: Sequence[Sequence[int]], groups: int, rank: int) -> Convolution:
    """Of stride, padding and dilation, which may have one number for all dims."""
    stride, padding, dilation = (tuple(given) * (rank if len(given) == 1 else 1) for given in sizes)
    return Convolution(stride, padding, dilation, groups)


def _first(mode: EnsembleMode, x: Any) -> Tensor:
    """The unperturbed member of each replica."""
    return mode.noise.first_members(_stacked(mode, x))


def perturb_products(
    mode: EnsembleMode, t: Tensor, size: Tensor, n: int, unfold: Callable[[], UnfoldedProduct]
) -> Tensor:
    """Perturb the stacked t, whose elements are sums of n products of magnitude `size`, as those of matrices are."""
    noise, error = mode.noise, None
    adds_up = noise.adds_up(t.numel() * n, is_product=True)
    if adds_up and noise.is_thorough:
        product = unfold()
        is_sum = product.left.shape[-1] > 1
        found = noise.measure(matmul_errors, product.left, product.right) if is_sum else None
        error = None if found is None else product.arrange(found)
    factor = (tree_steps(n) if adds_up else rounding_steps(n)) + 1 + cut_off(noise)
    return noise.add_error_(t, size, factor, n, error)


def interpolate(dims: int, reach: int) -> Any:
    """Rule of interpolation of (x, sizes, ..), and of its gradient of (g, sizes, sizes of x, ..).

    Besides the terms that an element adds up the place between the points is rounded, unless a step is a power of two:
    that moves the weights of the nearest points, also of those whose weight is 0. Weights themselves round near 1.
    """
    pools = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}

    def nearby(x: Tensor) -> Tensor:
        """The largest of the numbers around each, (.., *spatial)."""
        flat = x.reshape(-1, 1, *x.shape[-dims:])
        return pools[dims](flat, 2 * reach + 1, stride=1, padding=reach).view(x.shape)

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = map_members(mode, func, args, kwargs)
        (x, *rest), is_gradient = absolute(args), "backward" in str(func)
        bounds = map_members(mode, func, (x, *rest), kwargs).abs()
        sizes = args[2][-dims:] if is_gradient else args[0].shape[-dims:]
        outputs = args[0].shape[-dims:] if is_gradient else results.shape[-dims:]
        points = (2 * reach) ** dims
        if is_gradient:
            points *= math.prod(-(-out // max(size, 1)) + 1 for out, size in zip(args[1], sizes, strict=True))
            moved = nearby(bounds)
        else:
            moved = map_members(mode, func, (wrap_stacked(nearby(unwrap(x))), *rest), kwargs).abs()
        given = args[3:] if is_gradient else args[2:]
        off = 0.25 * dims + sum(rounded_places(given, sizes, outputs, is_gradient, results))
        amplitude = bounds * (rounding_steps(points) + 1) + moved * (2.0 * reach * off)
        return wrap(mode, mode.noise.add_error_(results, amplitude, 1.0, points))

    return rule


def rounded_places(
    options: tuple[Any, ...], sizes: Sequence[int], outputs: Sequence[int], is_gradient: bool, results: Tensor
) -> list[Tensor]:
    """By how many u the places of an interpolation may be off, one dim after another, of (aligned, *scales)."""
    aligned, scales = options[0], [*(options[1:] or ()), *[None] * len(sizes)]
    off = []
    for dim, (size, out) in enumerate(zip(sizes, outputs, strict=True)):
        step = (size - 1) / max(out - 1, 1) if aligned else 1 / scales[dim] if scales[dim] else size / out
        count, step_of = (size, 1.0) if is_gradient else (out, step)
        places = torch.arange(count, dtype=results.dtype, device=results.device).add_(1).mul_(step_of).add_(1)
        # A kernel may multiply by a rounded reciprocal: 41 * (1/82) is no 1/2 in float32.
        ends = (size - aligned, out - aligned) if aligned or not scales[dim] else (1,)
        exact = step == 0 or (is_power_of_two(step) and any(map(is_power_of_two, ends)))
        off.append(torch.zeros_like(places) if exact else places)
    return [places.view(-1, *(1,) * (len(sizes) - 1 - dim)) for dim, places in enumerate(off)]


def is_power_of_two(number: float) -> bool:
    """Whether a division by the number is exact."""
    return math.frexp(number)[0] == 0.5


def nearest_terms(args: tuple[Any, ...]) -> int:
    """Terms in an element of the gradient of taking the nearest of (g, sizes, sizes of x, ..)."""
    sizes = args[2][-len(args[1]) :]
    return math.prod(int(-(-out // max(size, 1)) + 1) for out, size in zip(args[1], sizes, strict=True))


def replicated_terms(args: tuple[Any, ...]) -> int:
    """Terms in an element of the gradient of a pad by the last element, of (g, x, widths on both sides of each dim)."""
    return math.prod(1 + sum(max(int(width), 0) for width in args[2][at : at + 2]) for at in range(0, len(args[2]), 2))


def reflected_terms(args: tuple[Any, ...]) -> int:
    """Terms in an element of the gradient of a pad by reflection: itself and its images on both sides of each dim."""
    return int(3 ** (len(args[2]) // 2))


def max_pool_terms(dims: int) -> Any:
    """Windows of a maximum pool in which an element may be the greatest, of (g, x, window, stride, ..)."""

    def count(args: tuple[Any, ...]) -> int:
        given = (args[2], args[3] or args[2], args[5])
        windows, strides, dilations = (sizes * dims if len(sizes) == 1 else sizes for sizes in given)
        places = zip(windows, strides, dilations, strict=True)
        return math.prod(min(window, -(-((window - 1) * apart + 1) // step)) for window, step, apart in places)

    return count


def adaptive_max_pool_terms(args: tuple[Any, ...]) -> int:
    """The same of an adaptive pool, of (g, x, indices)."""
    pairs = zip(args[0].shape, args[1].shape, strict=True)
    return math.prod(int(-(-out // max(size, 1)) + 1) for out, size in pairs if out != size)


LINEAR = {
    pool_terms(1, 1): "avg_pool1d",
    pool_terms(1, 2): "avg_pool2d",
    pool_terms(1, 3): "avg_pool3d",
    pool_terms(2, 2): "avg_pool2d_backward col2im",
    pool_terms(2, 3): "avg_pool3d_backward",
    adaptive_terms: "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d "
    "_adaptive_avg_pool3d_backward",
    nearest_terms: "upsample_nearest1d_backward upsample_nearest2d_backward _upsample_nearest_exact1d_backward "
    "_upsample_nearest_exact2d_backward",
    replicated_terms: "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
    reflected_terms: "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward",
    max_pool_terms(2): "max_pool2d_with_indices_backward",
    max_pool_terms(3): "max_pool3d_with_indices_backward",
    adaptive_max_pool_terms: "adaptive_max_pool2d_backward adaptive_max_pool3d_backward",
}
"""Operations that are linear in one operand, by how many terms an element adds up."""
INTERPOLATION = {
    "upsample_linear1d": (1, 1),
    "upsample_bilinear2d": (2, 1),
    "upsample_trilinear3d": (3, 1),
    "upsample_bicubic2d": (2, 2),
}
"""Over how many dims an operation interpolates, and between how many points to each side."""


def register() -> None:
    """State the rules of this module."""
    RULES.register(matmul, "mm.default", "bmm.default")
    RULES.register(matrix_vector, "mv.default")
    RULES.register(dot, "dot.default", "vdot.default")
    RULES.register(add_product, "addmm.default", "addmv.default", "addbmm.default", "baddbmm.default")
    RULES.register(convolution, "convolution.default")
    RULES.register(convolution_backward, "convolution_backward")
    for count, names in LINEAR.items():
        for name in names.split():
            RULES.register(apply_linear(count), name)
    for name, (dims, reach) in INTERPOLATION.items():
        RULES.register(interpolate(dims, reach), name, f"{name}_backward")
