"""Defines the requests and results of plot workers, as plain data between processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fuzz.model.entry import Entry
from fuzz.report.plots.plot_data import Plot

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
class PlotResult:
    """The plots of one case, and its stand-alone program. `why` and `no_script` say why there is none.

    `failed` is whether another try may give more.
    """

    plots: tuple[Plot, ...] = ()
    why: str = ""
    script: str = ""
    no_script: str = ""
    failed: bool = False
