"""Compiles the loops in C for tests that compare them with torch's operations, and cannot wait for the background."""

from __future__ import annotations

from typing import Any

from fuzz.backends.cpu.compilers.objects import build_object
from fuzz.reference.envelope.noise_loops import COMPILER, bind_loops, loops_text


def compile_loops() -> Any:
    """The functions of loops.c, compiled now where they are not there. Raises as `build_object`."""
    COMPILER.found = COMPILER.found or bind_loops(build_object(loops_text(), "loops"))
    return COMPILER.found
