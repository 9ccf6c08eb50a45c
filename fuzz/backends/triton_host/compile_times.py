"""Counts the time of Triton's compiler for the activity `compile`."""

from __future__ import annotations

from typing import Any

from triton import knobs

from fuzz.worker.profile import PROFILE

MICROSECONDS = 1e6


def count_compile_times() -> None:
    """Counts every compilation of this process from now on, unless somebody else listens to them."""
    if knobs.compilation.listener is None:
        knobs.compilation.listener = count_compilation


def count_compilation(*, times: Any, cache_hit: bool, **_: Any) -> None:
    """Is called by Triton after a kernel was compiled, or read from its cache; `times` are in microseconds."""
    if not cache_hit:
        PROFILE.move("compile", times.total / MICROSECONDS)
