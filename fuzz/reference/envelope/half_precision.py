"""Evaluates operations on bfloat16 and float16 tensors of a reference as torch's own kernels do.

These compute in float32 and round the result once. So the members' operands are taken as float64, where the working
precision's noise is to be seen, and the stack is cast at the end.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import Rule, aten, decompose

__all__ = ["HALVES", "format_of_result", "has_statistics"]

HALVES: Final = (torch.bfloat16, torch.float16)
ROUNDS_EACH: Final = {
    getattr(aten, name)
    for name in (
        "add sub rsub mul pow prod index_add scatter_add index_put scatter_reduce cumsum cumprod mse_loss huber_loss "
        "smooth_l1_loss mse_loss_backward huber_loss_backward smooth_l1_loss_backward binary_cross_entropy_with_logits "
        "binary_cross_entropy_backward sigmoid_backward convolution_backward"
    ).split()
}
"""Operations that round each sum and product to the format itself, in torch's kernels too."""
ADDED_PRODUCTS: Final = {aten.addmm, aten.addmv, aten.addbmm, aten.baddbmm}


def format_of_result(rule: Rule, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    """The format of half precision to which an operation rounds what it computes in a wider one; None of others."""
    rounds = getattr(rule, "rounds", False) or func.overloadpacket in ADDED_PRODUCTS
    if not rounds or rule is decompose or func.overloadpacket in ROUNDS_EACH or func._schema.is_mutable:
        return None
    kinds = [x.dtype for x in args if isinstance(x, Tensor) and x.dim() and x.is_floating_point()]
    if not kinds or kinds[0] not in HALVES or kwargs.get("dtype") is not None:
        return None
    return kinds[0] if has_statistics(func) or len({*kinds}) == 1 else None


def has_statistics(func: OpOverload) -> bool:
    """Whether an operation is a norm, whose further results and operands are statistics in float32."""
    return func._schema.name.startswith(("aten::native_", "aten::_native_", "aten::_fused_"))
