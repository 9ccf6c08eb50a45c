"""The `interpreter` backend: Triton's own interpreter, which only cross-checks. It is slow and observes nothing.

Triton decides when it is imported whether kernels are interpreted, so it needs a process of its own. Its own faults do
not matter for cross-checks: it runs where it computes right values, and corrupts memory outside of buffers only there.
It multiplies all of float32; the operands of tf32 products are cut before it does, as tensor cores cut them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fuzz.backends.base import Backend, Session
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
    # Its process only answers a question: what numpy warns of in it is nothing that a person has to know.
    environment = {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}

    def unavailable_reason(self) -> str:
        if os.environ.get("TRITON_INTERPRET") != "1":
            return "backend interpreter only cross-checks, in a process of its own; choose cpu or cuda"
        return ""

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        from triton.runtime.interpreter import InterpreterBuilder

        from fuzz.backends.triton_host.patching import Patch, patched

        multiply = InterpreterBuilder.create_dot

        def create_dot(builder: Any, left: Any, right: Any, total: Any, precision: Any, *rest: Any) -> Any:
            if precision.name == "TF32":
                left, right = cut_to_tf32(left), cut_to_tf32(right)
            return multiply(builder, left, right, total, precision, *rest)

        with patched([Patch(InterpreterBuilder, "create_dot", create_dot)]):
            yield Session()

    def cross_check_refusal(self, case: Case) -> str:
        for name, value in case.last.tensors.items():
            if value.dtype not in DTYPES:
                return f"cannot compute with {name} in {value.dtype}"
            if value.layout.reach:
                return f"cannot reach as far as {name} does"
        return "would take too long" if case.elements() > MOST_ELEMENTS else ""


def cut_to_tf32(operand: Any) -> Any:
    """A float32 operand of a product without the low 13 bits of its elements; another one as it is."""
    if operand.data.dtype != np.float32:
        return operand
    cut = (operand.data.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return type(operand)(np.where(np.isnan(operand.data), operand.data, cut), operand.dtype)
