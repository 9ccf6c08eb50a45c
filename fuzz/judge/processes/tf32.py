"""Finds out whether a solution's float32 products may be computed in tf32; the tolerance then allows for that.

By default `tl.dot` and, on a GPU, PyTorch's convolutions do so, and matrix products where a setting asks for it. All
other float32 products are computed in float32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fuzz.backends.dispatch_mode import DispatchMode

NARROW_DOT = re.compile(r"tt\.dot\b[^\n]*inputPrecision = [^\n]*: tensor<[\dx]*xf32")
"""A float32 product in a kernel's TTIR with an input precision; the default, `ieee`, is not printed there."""
LIBRARY_PRODUCTS = ("convolution", "_rnn", "scaled_dot_product")
"""Parts of the names of PyTorch's operations that may use tf32 on a GPU; of matrix products the settings tell."""


class Tf32Record(DispatchMode):
    """Whether some product may be in tf32. While active, it looks at the operations of PyTorch as well."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.may_use_tf32 = False

    def look_at(self, kernel: Any) -> None:
        """Looks at a kernel that was launched: what the launch has returned."""
        if not self.may_use_tf32 and kernel is not None:
            text = getattr(kernel, "asm", {}).get("ttir")
            self.may_use_tf32 = not isinstance(text, str) or NARROW_DOT.search(text) is not None

    def look_at_settings(self, build_folder: Path) -> None:
        """Looks at what the solution has set for a GPU; code that it has built may use tf32."""
        # A solution may have removed the folder, in which glob finds nothing.
        self.may_use_tf32 |= may_multiply_in_tf32() or any(build_folder.glob("*"))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(getattr(func, "_overloadpacket", func))
        self.may_use_tf32 |= any(part in name for part in LIBRARY_PRODUCTS)
        return func(*args, **(kwargs or {}))


def may_multiply_in_tf32() -> bool:
    """Whether PyTorch's products of float32 on a GPU may be in tf32."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # raised once the newer setting, fp32_precision, has been used
        return True
