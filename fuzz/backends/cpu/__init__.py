"""Triton kernels compiled for the CPU: TTIR -> C -> shared object, registered in process as a Triton backend.

from fuzz.backends import cpu

with cpu.active():
    kernel[grid](...)  # on CPU tensors; raises OutOfBounds with kernel, line, argument, program and lane

with cpu.active(), cpu.observe(order=7, unwritten=True, conflicts=True) as log:
    kernel[grid](...)  # programs in a permuted order; log.violations instead of an exception
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzz.backends.cpu.interface import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Imports torch and triton on first use: `backend.py` of this package is imported where they may be missing."""
    if name.startswith("_"):
        raise AttributeError(name)
    value = globals()[name] = getattr(import_module("fuzz.backends.cpu.interface"), name)
    return value
