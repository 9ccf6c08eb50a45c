"""The C that a kernel was compiled from."""

from __future__ import annotations

from typing import Any


def c_source(compiled: Any) -> str:
    """The C text of what `kernel[grid](...)` or `kernel.warmup(...)` returned."""
    return str(compiled.asm["c"])
