"""Chooses the dims of a judgement's first cases, and smaller ones where these take long."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.judge.problem.description import ProblemDescription
from fuzz.judge.processes.requests import FLOPS

FIRST_SECONDS = 20.0
"""Seconds that a solution may take for the first case, before smaller dims are tried."""
EAGER_SECONDS = 0.5
"""Seconds that the problem's own code may take for the first case."""
ELEMENTS = {False: 1 << 19, True: 1 << 23}
"""Elements of all tensors of the first case, by whether the backend is an accelerator; the reference takes seconds."""
OPERATIONS = {False: FLOPS, True: 1 << 32}
"""Floating-point operations of the first case, likewise. The reference does many times as many, in float64."""
COMPARING_SECONDS = 2.0
"""Processor seconds that a comparison with the reference may take at the dims of the cases after the first ones."""
SMALLEST_DIM = 16
"""Dims are not halved below it."""


def halved(description: ProblemDescription, dims: Mapping[str, int]) -> dict[str, int]:
    """The dims with each free one halved, as far as the problem takes it."""
    return {**dims, **{one.name: one.clamp(max(dims[one.name] // 2, SMALLEST_DIM)) for one in description.sizes}}


def name_changed(dims: Mapping[str, int], own: Mapping[str, int]) -> str:
    """The dims that differ from others, as text; empty where none does."""
    return ", ".join(f"{name}={size}" for name, size in dims.items() if own[name] != size)
