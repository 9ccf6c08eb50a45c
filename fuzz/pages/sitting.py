"""Sitting: what the studio is asked about an entry, and the Study it answers. Data between processes."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.entry import Entry
from fuzz.pages.portrait import Portrait

STUDIO = "fuzz.pages.studio:service"
"""What a worker runs to draw entries."""


@dataclass(frozen=True)
class Sitting:
    """An entry, and the command that repeats it, which its script tells."""

    entry: Entry
    repeat: str


@dataclass(frozen=True)
class Study:
    """What is shown of an entry beside its text: what is drawn, and the stand-alone program or why there is none."""

    portrait: Portrait
    script: str = ""
    why: str = ""
