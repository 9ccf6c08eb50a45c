"""Rounds all members of a stack in one pass over its memory, by a loop in C; torch's operations take a pass each."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fuzz.backends.cpu.compilers.objects import build_object
from fuzz.backends.cpu.errors import CompilerFailed, CompilerTimeout, NoCompiler
from fuzz.reference.envelope.pools import SPAN, NoisePool

__all__ = ["RoundingLoop"]


class Members(ctypes.Structure):
    """What all roundings of one stack share, as rounding.c describes it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("replicas", "members", "first_working", "span", "stride")),
        *((name, ctypes.c_double) for name in ("up", "down")),
    )


class RoundingLoop:
    """Rounds the stacks of one evaluation where they lie side by side on the host and a C compiler is there."""

    def __init__(self, replicas: int, members: int, first_working: int, scale_up: float, scale_down: float) -> None:
        self._members = Members(replicas, members, first_working, SPAN, 2 * SPAN, scale_up, scale_down)
        self._rows = replicas * members

    def round_(self, t: Tensor, factor: NoisePool, tiny: NoisePool | None, offset: int, eta: float) -> bool:
        """Do all that `MemberNoise.round_` does to the values, with the same bits; False where that is left to torch.

        `tiny` is None where nothing underflows.
        """
        if t.dtype is not torch.float64 or not (t.is_cpu and t.is_contiguous()):
            return False
        function = compile_loop()
        if function is None:
            return False
        size = t.numel() // self._rows
        draw = min(size, SPAN)
        lost = None if tiny is None else tiny.address(offset, draw)
        function(self._members, t.data_ptr(), size, factor.address(offset, draw), lost, eta)
        return True


@cache
def compile_loop() -> Any:
    """The function of rounding.c, compiled once and kept with the kernels; None where no C compiler makes it."""
    source = Path(__file__).with_name("rounding.c").read_text(encoding="utf-8")
    try:
        function: Any = ctypes.CDLL(str(build_object(source, "rounding"))).round_members
    except (NoCompiler, CompilerFailed, CompilerTimeout, OSError):
        return None
    address = ctypes.c_void_p
    function.argtypes = [ctypes.POINTER(Members), address, ctypes.c_int64, address, address, ctypes.c_double]
    function.restype = None
    return function
