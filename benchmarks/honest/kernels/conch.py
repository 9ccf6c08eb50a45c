"""Kernels of conch-triton-kernels (Stack AV, Apache-2.0), of contiguous tensors in one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import conch  # noqa: F401  Where the package is missing, no target of this file can be loaded.
import torch

from fuzz import option, size, target, tensor

M, N = size("M", 1, 256), size("N", 1, 4096)
Launcher = Callable[..., dict[str, torch.Tensor]]


def conch_kernel(**declaration: Any) -> Callable[[Launcher], Any]:
    """Declares a target: the package's callers give it contiguous tensors of one dtype."""
    return target(**{"accumulate": "inputs", "layout": "envelope", **declaration})


def whole(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Contiguous copies. TypeError where the dtypes differ."""
    if len({one.dtype for one in tensors}) > 1:
        raise TypeError("the tensors need one dtype")
    return [one.clone(memory_format=torch.contiguous_format) for one in tensors]


def rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


@conch_kernel(
    x=tensor(M, N), weight=tensor(N), eps=option(1e-6, 1e-5, 1e-1),
    reference=lambda x, weight, eps: dict(y=rms(x, eps) * weight),
)  # fmt: skip
def conch_rms_norm(x, weight, eps):
    """Root-mean-square norm."""
    from conch.ops.normalization.rms_norm import rms_norm

    return dict(y=rms_norm(*whole(x, weight), eps))


def added_reference(x, residual, weight, eps):
    return dict(y=rms(x + residual, eps) * weight, total=x + residual)


@conch_kernel(
    x=tensor(M, N), residual=tensor(M, N), weight=tensor(N), eps=option(1e-6, 1e-5, 1e-1), reference=added_reference,
)  # fmt: skip
def conch_fused_add_rms_norm(x, residual, weight, eps):
    """A residual added, and the root-mean-square norm of the sum."""
    from conch.ops.normalization.rms_norm import fused_add_rms_norm

    y, total = fused_add_rms_norm(*whole(x, residual, weight), eps)
    return dict(y=y, total=total)


@conch_kernel(
    x=tensor(M, N), weight=tensor(N), eps=option(1e-6, 1e-5, 1e-1),
    reference=lambda x, weight, eps: dict(y=rms(x, eps) * (1 + weight)),
)  # fmt: skip
def conch_gemma_rms_norm(x, weight, eps):
    """Root-mean-square norm, scaled by 1 plus the weight."""
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm

    return dict(y=gemma_rms_norm(*whole(x, weight), eps))


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = x.shape[-1] // 2
    return x[..., :middle], x[..., middle:]


def silu_reference(x):
    gate, up = halves(x)
    return dict(y=gate * torch.sigmoid(gate) * up)


@conch_kernel(x=tensor(M, 2 * N), dims=(N,), reference=silu_reference)
def conch_silu_and_mul(x):
    """SiLU of a row's first half times its second."""
    from conch.ops.activation.silu_and_mul import silu_and_mul

    return dict(y=silu_and_mul(*whole(x)))


def gelu_reference(x):
    gate, up = halves(x)
    inner = 0.7978845608028654 * (gate + 0.044715 * gate**3)
    return dict(y=0.5 * gate * (1 + inner.tanh()) * up)


@conch_kernel(x=tensor(M, 2 * N), dims=(N,), reference=gelu_reference)
def conch_gelu_tanh_and_mul(x):
    """GELU by tanh of a row's first half times its second."""
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul

    return dict(y=gelu_tanh_and_mul(*whole(x)))
