"""Plain Hypothesis: sizes as integers, arrays of floats, a sampled dtype, options, assert_close; its own shrinking."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from .subject import Subject

MOST = 64
"""The largest size: beyond it drawing the elements takes most of the time."""
SHRINKING = 0.5
"""Shrinking may go on for this share of the time, as it may for `fuzz run`."""


class Over(BaseException):
    """The time is over."""


def run(subject: Subject, number: int) -> None:
    floats = st.floats(-100, 100, width=32)

    @st.composite
    def cases(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, torch.Tensor], dict[str, Any]]:
        dims = {dim.name: dim.clamp(draw(st.integers(dim.low, min(dim.high, MOST)))) for dim in subject.target.sizes}
        kind = getattr(torch, draw(st.sampled_from(subject.dtypes())))
        made = {name: draw(arrays("float32", shape, elements=floats)) for name, shape in subject.shapes(dims).items()}
        options = {name: draw(st.sampled_from(one.choices)) for name, one in subject.target.options.items()}
        return dims, {name: torch.from_numpy(array.copy()).to(kind) for name, array in made.items()}, options

    @seed(number)
    @settings(
        max_examples=10**7,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(cases())
    def test(case: tuple[dict[str, int], dict[str, torch.Tensor], dict[str, Any]]) -> None:
        if subject.age > subject.seconds * (1 if subject.first is None else 1 + SHRINKING):
            raise Over
        dims, tensors, options = case
        subject.check(tensors, options, dims)

    try:
        test()
    except (Over, Exception):
        return
