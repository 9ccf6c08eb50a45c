"""Lets `scaled_dot_product_attention` of CPU tensors ask for the flash kernel of a GPU, where a library registers one.

PyTorch chooses a kernel by the device: on a GPU one that calls `aten::_flash_attention_forward`, on the CPU one of its
own, in whose place this one stands.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzz.backends.triton_host.knobs import knobs

GPU_KERNEL = "aten::_flash_attention_forward"
CPU_KERNEL = "aten::_scaled_dot_product_flash_attention_for_cpu"
LEAST_CAPABILITY, LARGEST_WIDTH, WIDTHS_ARE_MULTIPLES_OF = (8, 0), 256, 8
"""Of what PyTorch's flash attention takes on a GPU."""


def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """The values [batch, heads, length, width] and the logarithms of sums [batch, heads, length], for tensors shaped as
    the values are. NotImplemented where a GPU takes another kernel."""
    width = query.shape[-1]
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    if not is_half or attn_mask is not None or width > LARGEST_WIDTH or knobs.capability < LEAST_CAPABILITY:
        return NotImplemented
    padding = (0, -width % WIDTHS_ARE_MULTIPLES_OF)
    query, key, value = (
        torch.nn.functional.pad(operand, padding).transpose(1, 2) if padding[1] else operand.transpose(1, 2)
        for operand in (query, key, value)
    )
    lengths = query.shape[1], key.shape[1]
    values, log_sums, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, None, None, *lengths, dropout_p, is_causal, False, scale=scale or 1 / math.sqrt(width)
    )
    return values[..., :width].transpose(1, 2), log_sums
