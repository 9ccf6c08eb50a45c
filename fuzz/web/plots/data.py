"""PlotData: what is drawn of a case: outputs element by element, and the error against one input. Plain numbers.

Made by a worker (``studio``), drawn by ``plots``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OutputErrors:
    """One output of the call that shows the finding, element by element as float64.

    `places` are indices into the flattened output, all of them or a choice that holds every kind; `total` counts all
    elements. `inputs` are those of the output's shape, at the same places.
    """

    output: str
    dtype: str
    shape: tuple[int, ...]
    total: int
    places: tuple[int, ...]
    got: tuple[float, ...]
    want: tuple[float, ...]
    bound: tuple[float, ...]
    ulps: tuple[float, ...]
    wrong: tuple[bool, ...]
    inputs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[float, ...]:
        """abs(got - want); 0 where both are the same infinity or both are NaN."""
        pairs = zip(self.got, self.want, strict=True)
        return tuple(0.0 if a == b or (a != a and b != b) else abs(a - b) for a, b in pairs)


@dataclass(frozen=True)
class ErrorCurve:
    """The largest error of an elementwise target in ULP, over values of one argument while the others hold `fixed`.

    `sign` tells at which values the result has the wrong sign.
    """

    output: str
    argument: str
    dtype: str
    fixed: Mapping[str, str]
    x: tuple[float, ...]
    ulps: tuple[float, ...]
    sign: tuple[bool, ...]


@dataclass(frozen=True)
class PlotData:
    """Everything that is drawn of one case; `why` says why there is nothing, or not more."""

    panels: tuple[OutputErrors, ...] = ()
    curves: tuple[ErrorCurve, ...] = ()
    why: str = ""
