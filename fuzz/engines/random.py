"""random: Hypothesis draws every case, from bytes that depend on the seed and the case's index alone.

So case i of a seed is the same however many workers run and whatever happened before it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings

from fuzz.case import Case
from fuzz.strategies import cases
from fuzz.target import Target

BYTES = 768
"""Bytes of choices that one case may use; a case that would need more is drawn again."""


@dataclass
class RandomEngine:
    """Proposes case 0, 1, 2, .. of a target and a seed."""

    target: Target
    seed: int
    name: str = "random"
    _drawn: list[Case] = field(default_factory=list)
    _draw: Any = None

    def __post_init__(self) -> None:
        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(cases(self.target))
        def collect(case: Case) -> None:
            self._drawn.append(case)

        self._draw = collect.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def case(self, index: int) -> Case:
        """Case `index` of this seed."""
        for attempt in range(100):
            self._drawn.clear()
            self._draw(choices(f"{self.seed}/{index}/{attempt}"))
            if self._drawn:
                return self._drawn[-1]
        raise RuntimeError(f"no case {index} for target {self.target.name!r} within 100 attempts")


def choices(key: str) -> bytes:
    """Bytes that depend on the key alone (SHAKE-128)."""
    return hashlib.shake_128(key.encode()).digest(BYTES)
