"""Perturbs and measures all members of a stack in one pass over its memory, by loops in C; torch takes a pass each."""

from __future__ import annotations

import ctypes
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import BackgroundBuild, load_shared, object_path
from fuzz.backends.cpu.errors import NoCompiler
from fuzz.reference.envelope.noise_pools import SPAN, NoisePool

__all__ = [
    *("FloatFormat", "InputChange", "NoiseLoops", "lies_flat", "ready_loops"),
    *("measure_spread", "measure_sum_errors"),
]

SCRATCH_TERMS, SCRATCH_NUMBERS = 4096, 20
"""Numbers for each term of a sum that the loops measure several sums of at a time, and the most terms of such a sum."""
LOOK_SECONDS = 0.05
"""Seconds between two looks at whether the loops are compiled."""
PATIENCE_SECONDS = 2.0
"""Seconds from the first look to compiling them: that takes a second, which is lost where a process ends sooner."""


class MemberLayout(ctypes.Structure):
    """What all roundings of one stack share, as loops.c describes it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("replicas", "members", "first_working", "span", "stride")),
        *((name, ctypes.c_double) for name in ("up", "down")),
    )


class InputChange(ctypes.Structure):
    """By which factors magnitudes are raised and lowered, and to what at most, as loops.c describes it."""

    _fields_ = tuple((name, ctypes.c_double) for name in ("up", "down", "largest"))


class FloatFormat(ctypes.Structure):
    """A format of floating numbers, as loops.c describes it."""

    _fields_ = tuple((name, ctypes.c_double) for name in ("least", "most", "half"))


class NoiseLoops:
    """Perturbs the stacks of one evaluation where they lie side by side on the host and a C compiler is there."""

    def __init__(self, replicas: int, members: int, first_working: int, scale_up: float, scale_down: float) -> None:
        self._members = MemberLayout(replicas, members, first_working, SPAN, 2 * SPAN, scale_up, scale_down)
        self._address = ctypes.addressof(self._members)
        self._rows = replicas * members
        self._loops = ready_loops()

    def round_(self, t: Tensor, factor: NoisePool, tiny: NoisePool | None, offset: int, eta: float) -> bool:
        """Do all that `MemberNoise.round_` does to the values, with the same bits; False where that is left to torch.

        `tiny` is None where nothing underflows.
        """
        loops = self._loops
        if loops is None or not lies_flat(t):
            return False
        size = t.numel() // self._rows
        draw = size if size < SPAN else SPAN
        lost = None if tiny is None else tiny.address(offset, draw)
        loops.round_members(self._address, t.data_ptr(), size, factor.address(offset, draw), lost, eta)
        return True

    def add_error_(
        self,
        t: Tensor,
        amplitude: Tensor,
        sum_error: Tensor | None,
        tiny: NoisePool | None,
        relative: NoisePool,
        offset: int,
        scales: tuple[float, float, float, float],
    ) -> bool:
        """Do all that `MemberNoise.add_error_` does to the values, with the same bits; False where torch has to.

        `scales` are the unit of underflow, and by what terms that underflow, the amplitude and `sum_error` are
        multiplied; `tiny` is None where nothing underflows.
        """
        loops = self._loops
        if loops is None or not (lies_flat(t) and lies_flat(amplitude) and amplitude.shape == t.shape):
            return False
        if sum_error is not None and not lies_flat(sum_error):
            return False
        size = t.numel() // self._rows
        draw = min(size, SPAN)
        addresses = t.data_ptr(), size, amplitude.data_ptr(), None if sum_error is None else sum_error.data_ptr()
        lost = None if tiny is None else tiny.address(offset, draw)
        loops.add_errors(self._address, *addresses, lost, relative.address(offset, draw), *scales)
        return True


def measure_spread(rows: Tensor, first: int, end: int, weights: Tensor) -> tuple[Tensor, Tensor] | None:
    """The unperturbed members of (replicas, members, *shape), and how far those from `first` to before `end` lie off.

    Distances are multiplied by `weights` of these members. None where one is not finite, and where torch has to.
    """
    loops = ready_loops()
    if loops is None or not lies_flat(rows):
        return None
    replicas, members, *shape = rows.shape
    value = rows.new_empty((replicas, *shape))
    spread = torch.empty_like(value)
    numbers = replicas, members, value.numel() // max(replicas, 1), first, end
    addresses = weights.data_ptr(), value.data_ptr(), spread.data_ptr()
    return (value, spread) if loops.measure_spread(rows.data_ptr(), *numbers, *addresses) else None


def measure_sum_errors(terms: Tensor, deviations: float) -> Tensor | None:
    """How far each sum of terms (size, *shape) is off in any order, (*shape), as `error_magnitudes` says.

    None where that is left to numpy.
    """
    loops, (size, *shape) = ready_loops(), terms.shape
    if loops is None or size < 2 or terms.dtype is not torch.float64 or not terms.is_cpu:
        return None
    found = terms.new_empty(shape)
    sums = found.numel()
    # As they lie, if that is flat: the terms of a sum side by side, or one term of all sums.
    is_row = terms.stride(0) == 1
    flat = (terms.movedim(0, -1) if is_row else terms).contiguous()
    steps = (1, size) if is_row else (sums, 1)
    scratch = torch.empty(max(SCRATCH_NUMBERS * min(size, SCRATCH_TERMS), 3 * size), dtype=torch.float64)
    addresses = scratch.data_ptr(), found.data_ptr()
    loops.measure_sum_errors(flat.data_ptr(), size, sums, *steps, deviations, *addresses)
    return found


def lies_flat(t: Tensor) -> bool:
    """Whether a loop can walk through a tensor."""
    return t.dtype is torch.float64 and t.is_cpu and t.is_contiguous()


@dataclass
class LoopsCompiler:
    """Has the C compiler make the loops in the background, once for all processes, and takes them when they are there.

    Until then, and where no C compiler makes them, torch and numpy compute the same bits in more time.
    """

    found: Any = None
    _build: BackgroundBuild | None = None
    _next_look: float = 0.0
    _first_look: float = math.inf

    def look(self) -> Any:
        """The functions of loops.c, None where they are not there."""
        if self.found is None and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            try:
                self._look_for_object()
            except (NoCompiler, OSError):
                self._next_look = math.inf
        return self.found

    def _look_for_object(self) -> None:
        path = object_path(loops_text())
        if path.exists():
            # A damaged object is made again after the next look.
            with suppress(OSError):
                self.found, self._build = bind_loops(path), None
        elif self._build is None or self._build.is_foreign:
            now = time.monotonic()
            self._first_look = min(self._first_look, now)
            if now > self._first_look + PATIENCE_SECONDS:
                self._build = BackgroundBuild.start(loops_text())
        elif self._build.has_ended() and not path.exists():
            self._next_look = math.inf


COMPILER = LoopsCompiler()
ready_loops = COMPILER.look
"""The functions of loops.c; None until they are compiled, and where no C compiler makes them."""


@cache
def loops_text() -> KernelText:
    """The C of the loops."""
    return KernelText.of(Path(__file__).with_name("loops.c").read_text(encoding="utf-8"))


def bind_loops(path: Path) -> Any:
    """The functions of a shared object of loops.c, with their types. OSError where it cannot be loaded."""
    loops: Any = load_shared(path)
    address, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    loops.round_members.argtypes = [address, address, size, address, address, number]
    loops.add_errors.argtypes = [address, address, size, *[address] * 4, *[number] * 4]
    loops.perturb_inputs.argtypes = [address, *[size] * 8, ctypes.POINTER(InputChange)]
    loops.compare.argtypes = [*[address] * 4, size, *[number] * 3, ctypes.POINTER(FloatFormat), address, address]
    loops.measure_spread.argtypes = [address, *[size] * 5, *[address] * 3]
    loops.measure_spread.restype = ctypes.c_int
    loops.measure_sum_errors.argtypes = [address, *[size] * 4, number, address, address]
    loops.measure_sum_errors.restype = None
    loops.compare.restype = size
    loops.round_members.restype = loops.add_errors.restype = loops.perturb_inputs.restype = None
    return loops
