"""Keeps the cases that ran when a slice died, until each has run again: the suspects.

Each is a file whose name ends with the number of deaths beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.campaign.journal import read_suspects
from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.files import write_file
from fuzz.model.case import Case
from fuzz.model.entry import Entry

ALONE_DEATHS, MOST_DEATHS = 2, 10
"""Deaths beside a suspect from which on it runs alone, and after which it is only kept."""


@dataclass
class Suspects:
    """The suspects of all jobs of a campaign. A job is named by its tag; `say` gets lines for people."""

    folder: Path
    say: Callable[[str], None]

    def record(self, tag: str, journal: Path, *, blamed: bool) -> int:
        """Turns what a journal says to run into suspects; how many there are. CorpusError where that fails.

        `blamed` is whether one of them may have ended the slice: a campaign that is stopped ends its slices itself.
        """
        cases = read_suspects(journal)
        try:
            for case in cases:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(tag, case, blamed)
        except OSError as error:
            # The journal stays, and is read again when the campaign goes on.
            raise CorpusError(f"cannot write {self.folder}: {error.strerror}") from None
        journal.unlink(missing_ok=True)
        return len(cases)

    def _write(self, tag: str, case: Case, blamed: bool) -> None:
        text = codec.dumps(Entry(case), digest=False)
        name = f"{tag}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        old = next(self.folder.glob(f"{name}.*"), None)
        deaths = (_deaths(old) if old else 0) + blamed
        write_file(self.folder / f"{name}.{deaths}", text)
        if old is not None and _deaths(old) != deaths:
            old.unlink(missing_ok=True)

    def tags(self) -> set[str]:
        """The jobs with suspects that are to run."""
        paths = self.folder.glob("[!.]*-*") if self.folder.is_dir() else ()
        return {path.name.partition("-")[0] for path in paths if _deaths(path) < MOST_DEATHS}

    def select(self, tag: str) -> tuple[str, ...]:
        """The suspects of a job that its next slice runs first."""
        paths = sorted(self.folder.glob(f"{tag}-*"), key=_deaths)
        for path in paths:
            if _deaths(path) == MOST_DEATHS:
                self.say(f"{path}: whatever ran it ended {MOST_DEATHS} times; it is kept, and runs no more")
                path.rename(path.with_suffix(f".{MOST_DEATHS + 1}"))
        left = [path for path in paths if _deaths(path) < MOST_DEATHS]
        together = [path for path in left if _deaths(path) < ALONE_DEATHS]
        # One that kills is told apart from those that only waited beside it by running alone.
        return tuple(str(path) for path in together or left[:1])


def _deaths(path: Path) -> int:
    return int(path.suffix[1:])
