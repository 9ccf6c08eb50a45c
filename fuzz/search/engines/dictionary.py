"""Keeps the numbers at which a kernel may branch, as sizes and as bit patterns of tensor elements.

Some come from the code of the launcher and its kernels, which is known from the start, others are what compiled kernels
compare with (`Report.constants`). A comparison with such a number turns at cases that meet it exactly, or are one step
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fuzz.model.dims import Size
from fuzz.model.dtypes import DType, neighbours, to_bits

PLAIN = frozenset((-1, 0, 1, 2))
"""Numbers that every program holds and every strategy draws."""
MAX_NUMBERS = 512
"""Numbers that are kept; the first ones come from the code."""
LEAST_PATTERN = 1 << 12
"""Whole numbers from this one on may be bit patterns."""


@dataclass
class Dictionary:
    """Numbers in the order in which they were learnt, each once."""

    numbers: list[float] = field(default_factory=list)

    def add(self, numbers: Iterable[float]) -> None:
        for number in numbers:
            plain = number in PLAIN or not math.isfinite(number)
            if not plain and number not in self.numbers and len(self.numbers) < MAX_NUMBERS:
                self.numbers.append(number)

    def sizes(self, dim: Size) -> list[int]:
        """Sizes of a dim that are such a number, or one less or more."""
        whole = [int(number) for number in self.numbers if number == int(number)]
        near = [size + step * dim.multiple for size in whole for step in (0, -1, 1)]
        return [size for size in near if dim.clamp(size) == size]

    def centres(self, d: DType) -> list[int]:
        """The patterns that are such a number in a format, or have it as their bits."""
        if d.kind == "bool":
            return []
        bits = [int(n) for n in self.numbers if d.is_float and n == int(n) and LEAST_PATTERN <= n < d.inf_bits]
        fitting = [n for n in self.numbers if abs(n) <= d.largest and (d.is_float or n == int(n))]
        fitting += [-n for n in fitting if d.kind in ("float", "int")]
        patterns = to_bits(np.array(fitting, dtype=np.float64), d).tolist() if fitting else []
        return list(dict.fromkeys([*patterns, *bits]))

    def patterns(self, d: DType) -> list[int]:
        """Those bits and the ones beside them."""
        return list(dict.fromkeys(pattern for centre in self.centres(d) for pattern in neighbours(centre, 1, d)))
