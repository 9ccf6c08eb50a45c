"""PlotRequest: what the studio is asked about an entry, and the PlotResult it answers. Data between processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fuzz.model.entry import Entry
from fuzz.web.plots.data import PlotData

STUDIO = "fuzz.web.plots.worker:make_handler"
"""What a worker runs to draw entries."""


@dataclass(frozen=True)
class PlotConfig:
    """Where a studio runs cases, and where it may load targets from.

    `given` is a file that holds every target. Without it: the built-in targets, then the files in `folders`, and with
    `beside` those beside the four folders above an entry, as `fuzz replay` finds them.
    """

    backend: str
    given: str = ""
    folders: tuple[Path, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class PlotRequest:
    """An entry with its file, and the command that repeats it, which its script tells."""

    path: Path
    entry: Entry
    repeat: str


@dataclass(frozen=True)
class PlotResult:
    """What is shown of an entry beside its text: what is drawn, and the stand-alone program or why there is none."""

    portrait: PlotData
    script: str = ""
    why: str = ""
