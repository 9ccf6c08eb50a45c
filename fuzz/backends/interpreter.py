"""The `interpreter` backend: Triton's own interpreter, which only cross-checks. It is slow and observes nothing.

Triton decides when it is imported whether kernels are interpreted, so it needs a process of its own. Its own faults do
not matter for cross-checks: it runs where it computes right values, and corrupts memory outside of buffers only there.
"""

from __future__ import annotations

import os

from fuzz.backends.base import Backend
from fuzz.model.case import Case

DTYPES = ("float32", "float16", "int32", "int64", "int16", "int8", "uint8", "bool")
"""Dtypes that it computes with; bfloat16 is computed on its bit patterns, float8 not at all."""
MOST_ELEMENTS = 1 << 12
"""Elements of the largest case that it cross-checks: it takes half a millisecond for each program instance."""


class InterpreterBackend(Backend):
    """Runs kernels by Triton's interpreter."""

    name = "interpreter"
    selectable = False
    arithmetic = "numpy"
    environment = {"TRITON_INTERPRET": "1"}

    def unavailable_reason(self) -> str:
        if os.environ.get("TRITON_INTERPRET") != "1":
            return "backend interpreter only cross-checks, in a process of its own; choose cpu or cuda"
        return ""

    def cross_check_refusal(self, case: Case) -> str:
        for name, value in case.last.tensors.items():
            if value.dtype not in DTYPES:
                return f"cannot compute with {name} in {value.dtype}"
            if value.layout.reach:
                return f"cannot reach as far as {name} does"
        return "would take too long" if case.elements() > MOST_ELEMENTS else ""
