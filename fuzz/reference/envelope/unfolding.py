"""Writes convolutions and their gradients as products of matrices, so that what they lose is measured as these are.

Tensors have dims of replicas in front: x (replicas, batch, channels, *spatial), weights (replicas, out, in/groups,
*kernel). What padding and strides bring in are zeros, which lose nothing in a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

__all__ = ["Convolution", "UnfoldedProduct"]


@dataclass(frozen=True)
class UnfoldedProduct:
    """Matrices (.., M, K) and (.., K, N), and the sizes and the order of the dims (.., M, N) of the result."""

    left: Tensor
    right: Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def terms(self) -> int:
        """Products of numbers in all of it, of one replica."""
        return math.prod(self.shape) * int(self.left.shape[-1])

    def arrange(self, t: Tensor) -> Tensor:
        """What a function of the matrices gave for each element, (rows, .., M, N), as the result (rows, *shape)."""
        parts = t.reshape(len(t), *self.sizes).permute(0, *(1 + d for d in self.order))
        return parts.reshape(len(t), *self.shape)


@dataclass(frozen=True)
class Convolution:
    """Where a convolution reads, by spatial dim, and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def patches(self, x: Tensor, kernel: Sequence[int], outputs: Sequence[int]) -> Tensor:
        """(replicas, batch, channels, *outputs, *kernel): what each of so many outputs reads."""
        x = F.pad(x, [width for width in reversed(self.padding) for _ in range(2)])
        for number, size in enumerate(kernel):
            reach = self.dilation[number] * (size - 1) + 1
            x = x.unfold(3 + number, reach, self.stride[number])[..., :: self.dilation[number]]
        for number, size in enumerate(outputs):
            x = x.narrow(3 + number, 0, size)
        return x

    def product(self, x: Tensor, weight: Tensor, outputs: Sequence[int]) -> UnfoldedProduct:
        """The convolution itself, with a result of these spatial sizes."""
        kernel, groups = weight.shape[3:], self.groups
        read = self.patches(x, kernel, outputs)
        replicas, batch, channels, *rest = read.shape
        rank, out = len(kernel), weight.shape[1] // groups
        places = range(4, 4 + rank)
        grouped = read.reshape(replicas, batch, groups, channels // groups, *rest)
        left = grouped.permute(0, 1, 2, *places, 3, *range(4 + rank, 4 + 2 * rank))
        left = left.reshape(replicas, batch, groups, math.prod(outputs), math.prod((channels // groups, *kernel)))
        right = weight.reshape(replicas, 1, groups, out, left.shape[-1]).transpose(-1, -2)
        shape = (batch, groups * out, *outputs)
        return UnfoldedProduct(left, right, (batch, groups, math.prod(outputs), out), (0, 1, 3, 2), shape)

    def transposed(self, x: Tensor, weight: Tensor, sizes: Sequence[int]) -> UnfoldedProduct:
        """The transposed convolution with a result of these spatial sizes; weights are (in, out/groups, *kernel)."""
        kernel, rank, groups = weight.shape[3:], len(sizes), self.groups
        spread = x
        for number, step in enumerate(self.stride, 3):
            wide = F.pad(spread.unsqueeze(number + 1), [0] * 2 * (spread.dim() - 1 - number) + [0, step - 1])
            spread = wide.flatten(number, number + 1).narrow(number, 0, (spread.shape[number] - 1) * step + 1)
        widths: list[int] = []
        for number in reversed(range(rank)):
            reach = self.dilation[number] * (kernel[number] - 1)
            before = reach - self.padding[number]
            widths += [before, sizes[number] + reach - before - spread.shape[3 + number]]
        replicas, inner, out = weight.shape[0], weight.shape[1] // groups, weight.shape[2]
        flipped = weight.flip(list(range(3, 3 + rank))).reshape(replicas, groups, inner, out, *kernel)
        flipped = flipped.transpose(2, 3).reshape(replicas, groups * out, inner, *kernel)
        plain = Convolution((1,) * rank, (0,) * rank, self.dilation, groups)
        return plain.product(F.pad(spread, widths), flipped, sizes)

    def of_weight(self, g: Tensor, x: Tensor, kernel: Sequence[int]) -> UnfoldedProduct:
        """The gradient of the weight, by those of the outputs; of a transposed convolution with g and x swapped."""
        rank, groups = len(kernel), self.groups
        read = self.patches(x, kernel, g.shape[3:])
        replicas, batch, channels, *rest = read.shape
        out, terms = g.shape[2] // groups, batch * math.prod(g.shape[3:])
        left = (
            g.reshape(replicas, batch, groups, out, math.prod(g.shape[3:]))
            .permute(0, 2, 3, 1, 4)
            .reshape(replicas, groups, out, terms)
        )
        grouped = read.reshape(replicas, batch, groups, channels // groups, *rest)
        right = grouped.permute(0, 2, 1, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank))
        right = right.reshape(replicas, groups, terms, math.prod((channels // groups, *kernel)))
        shape = (groups * out, channels // groups, *kernel)
        return UnfoldedProduct(left, right, (groups, out, int(right.shape[-1])), (0, 1, 2), shape)
