"""Away: how a host speaks with a campaign whose files it does not see, on another machine.

Every file that it reads comes with the request, and lies below a folder of its own at the path that it has at the
campaign's. What it writes there travels back as events, so that the campaign writes it down at the same path.

    parcel folders        what folders hold from now on (to the host)
    turn number folders   it is this host's turn to file a finding, with what others filed before (to the host)
    turn number           a host asks for its turn
    filed number          a host has had its turn
    noted line            a line of the journal
    closed                the journal ended in order
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from fuzz.campaign.host_channel import Voice
from fuzz.campaign.protocol import Replay, Request, request_of

Folders = Mapping[str, Mapping[str, str]]
"""Path of a folder -> name in it -> text. A name may lie deeper."""


@dataclass
class AwayVoice(Voice):
    """Speaks for a host whose files lie below `root`; `ears` is what the campaign answers by."""

    root: Path = Path()
    ears: TextIO | None = None
    turns: int = 0
    told: dict[Path, dict[str, str]] = field(default_factory=dict)

    def say(self, kind: str, **values: Any) -> None:
        if kind == "saved":
            values["text"], values["gone"] = self._changes(Path(values["path"]))
        # Every path and message tells the campaign's own paths.
        self.write(json.dumps({"kind": kind, **values}).replace(str(self.root), ""))

    def heard(self, line: str) -> Request | None:
        value = json.loads(line)
        if value["kind"] in ("parcel", "turn"):
            # A turn that was granted when nobody waited for it any more has been given back already.
            self.unpack(value["folders"])
            return None
        request = request_of(value)
        target = str(self.at(request.target)) if request.target.startswith("/") else request.target
        if isinstance(request, Replay):
            return replace(request, target=target, paths=self._all_at(request.paths))
        corpus, journal = str(self.at(request.corpus)), str(self.at(request.journal))
        return replace(request, target=target, corpus=corpus, journal=journal, suspects=self._all_at(request.suspects))

    def _all_at(self, paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(self.at(path)) for path in paths)

    def at(self, path: str) -> Path:
        """Where a file of the campaign's lies here."""
        return self.root / path.lstrip("/")

    def unpack(self, folders: Folders) -> None:
        """Makes each folder hold these files, and none of those that it held before."""
        for folder, files in folders.items():
            place = self.at(folder)
            for name in self.told.get(place, {}).keys() - files.keys():
                (place / name).unlink(missing_ok=True)
            for name, text in files.items():
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", errors="surrogateescape")
            self.told[place] = dict(files)

    def _changes(self, path: Path) -> tuple[str, list[str]]:
        """(the text of an entry that was written, the names that its folder has no more)."""
        before = self.told.get(path.parent, {})
        now = {one.name: one.read_text(encoding="utf-8") for one in path.parent.glob("[!.]*.yaml")}
        self.told[path.parent] = now
        return now[path.name], sorted(before.keys() - now.keys())

    def noted(self, line: str) -> None:
        self.say("noted", line=line)

    def closed(self) -> None:
        self.say("closed")

    @contextmanager
    def turn(self, folder: Path) -> Iterator[None]:
        """Asks the campaign for the turn, and takes up what others filed meanwhile."""
        self.turns += 1
        self.say("turn", number=self.turns)
        try:
            self._wait()
            yield
        finally:
            self.say("filed", number=self.turns)

    def _wait(self) -> None:
        assert self.ears is not None
        for line in self.ears:
            value = json.loads(line)
            self.unpack(value["folders"])
            if value["kind"] == "turn" and value["number"] == self.turns:
                return
        raise SystemExit(0)  # The campaign is gone.
