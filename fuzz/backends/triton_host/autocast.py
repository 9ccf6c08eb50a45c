"""Applies automatic mixed precision for `cuda` to CPU tensors, which kernels take in place of a GPU's."""

from __future__ import annotations

from typing import Any

import torch

from fuzz.backends.triton_host.patching import Patch

DEFAULT = torch.float16
"""The dtype of `torch.autocast("cuda")`."""
real_init = torch.autocast.__init__
real_is_enabled, real_get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype


def init(context: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **keywords: Any) -> None:
    """`torch.autocast("cuda")` is one of the CPU, whose list of operations it follows."""
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or DEFAULT
    real_init(context, device_type, dtype, *args, **keywords)


def is_enabled(device_type: str = "cuda") -> bool:
    return bool(real_is_enabled("cpu" if device_type == "cuda" else device_type))


def get_dtype(device_type: str = "cuda") -> torch.dtype:
    """The dtype of the block around it, outside of one that of a GPU."""
    if device_type != "cuda":
        return real_get_dtype(device_type)
    return real_get_dtype("cpu") if real_is_enabled("cpu") else DEFAULT


PATCHES = [
    Patch(torch.autocast, "__init__", init),
    Patch(torch, "is_autocast_enabled", is_enabled),
    Patch(torch, "get_autocast_dtype", get_dtype),
    Patch(torch, "get_autocast_gpu_dtype", get_dtype),
]
