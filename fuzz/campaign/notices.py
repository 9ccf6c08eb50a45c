"""Keeps what the user's command is yet to receive of new findings in a folder, so that a killed campaign loses none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuzz.files import write_file


@dataclass(frozen=True)
class Notices:
    """One file for each finding, by its name: the document for `notify`. OSError where one cannot be written."""

    folder: Path
    notify: Callable[[dict[str, object]], None]

    def keep(self, name: str, document: Mapping[str, object]) -> None:
        """Takes up what is to be sent once the finding is triaged, or where the campaign ends before that."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / f"{name}.json", json.dumps(document))

    def drop(self, name: str) -> None:
        """Forgets a finding, of which something else is to be sent, or nothing."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def send(self, name: str) -> None:
        """Sends what is kept of a finding, if anything is. Killed just now, it is sent again: better than never."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            self.notify(json.loads(path.read_text(encoding="utf-8")))
            path.unlink()

    def send_rest(self) -> None:
        """Sends what an earlier run of the campaign has left, which was killed."""
        for path in sorted(self.folder.glob("[!.]*.json")):
            self.send(path.stem)
