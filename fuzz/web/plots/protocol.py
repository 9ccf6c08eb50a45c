"""Defines the requests and results of plot workers, as plain data between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.model.entry import Entry

WORKER = "fuzz.web.plots.worker:make_handler"


@dataclass(frozen=True)
class PlotConfig:
    """Where a worker runs cases, and where it may load targets from.

    `target_file` holds every target. Without it: the built-in targets, then the files in `target_folders`, and with
    `search_parents` those in the four folders above an entry, as `fuzz replay` finds them.
    """

    backend: str
    target_file: str = ""
    target_folders: tuple[Path, ...] = ()
    search_parents: bool = False


@dataclass(frozen=True)
class PlotRequest:
    """An entry with its file, and the command that repeats it, which its script states."""

    path: Path
    entry: Entry
    command: str


@dataclass(frozen=True)
class OutputErrors:
    """One output of the call that shows the finding, element by element as float64.

    `indices` are into the flattened output, all of them or a choice that holds every kind; `total` counts all
    elements. `inputs` are those of the output's shape, at the same indices.
    """

    output: str
    dtype: str
    shape: tuple[int, ...]
    total: int
    indices: tuple[int, ...]
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
    """The error of an elementwise target in ULP, over values of one argument while the others hold `fixed`.

    `wrong_sign` marks the values at which the result has the wrong sign.
    """

    output: str
    argument: str
    dtype: str
    fixed: Mapping[str, str]
    x: tuple[float, ...]
    ulps: tuple[float, ...]
    wrong_sign: tuple[bool, ...]


@dataclass(frozen=True)
class PlotResult:
    """What is plotted of one case, and its stand-alone program. `why` and `no_script` say why there is none.

    `failed` is whether another try may give more.
    """

    outputs: tuple[OutputErrors, ...] = ()
    curves: tuple[ErrorCurve, ...] = ()
    why: str = ""
    script: str = ""
    no_script: str = ""
    failed: bool = False
