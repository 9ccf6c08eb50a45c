"""Finds out whether a solution has float32 operands of products read in tf32, which the bound then allows for.

`tl.dot` reads them so unless it is told otherwise, and on a GPU PyTorch's convolutions do, and its products where it is
set to. Elsewhere a product of float32 is one of float32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fuzz.backends.dispatch_mode import DispatchMode

NARROW_DOT = re.compile(r"tt\.dot\b[^\n]*inputPrecision = [^\n]*: tensor<[\dx]*xf32")
"""A product of float32 in a kernel's TTIR that asks for another precision than `ieee`, which is not written out."""
LIBRARY_PRODUCTS = ("convolution", "_rnn", "scaled_dot_product")
"""Parts of the names of operations for whose products a library chooses the arithmetic, on a GPU."""


class Tf32Record(DispatchMode):
    """Whether products in tf32 were seen. While active, it looks at the operations of PyTorch as well."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_asked = False

    def look_at(self, kernel: Any) -> None:
        """Looks at a kernel that was launched: what the launch has returned."""
        if not self.is_asked and kernel is not None:
            text = getattr(kernel, "asm", {}).get("ttir")
            self.is_asked = not isinstance(text, str) or NARROW_DOT.search(text) is not None

    def look_at_settings(self, build_folder: Path) -> None:
        """Looks at what the solution has set for a GPU, and whether it has built code, of which nothing is known."""
        self.is_asked |= multiplies_in_tf32() or any(build_folder.iterdir())

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(getattr(func, "_overloadpacket", func))
        self.is_asked |= any(part in name for part in LIBRARY_PRODUCTS)
        return func(*args, **(kwargs or {}))


def multiplies_in_tf32() -> bool:
    """Whether PyTorch's products of float32 on a GPU may be in tf32."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # the newer setting was changed, and the older one is asked
        return True
