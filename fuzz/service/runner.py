"""Runner: campaigns as processes of their own, `fuzz campaign CONFIG`, which outlive the service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fuzz.errors import FuzzError
from fuzz.store import Campaign

TOLD = 4000
"""Characters of a process's last words that are kept."""


class Refused(FuzzError):
    """What was asked for cannot be done now; the text says why."""


@dataclass(frozen=True)
class Config:
    """A campaign's file. `key` is its name without the ending, `told` the first line of comment in it."""

    key: str
    path: Path
    text: str
    told: str


@dataclass
class Started:
    """A process that this service started, and where its last words are."""

    config: str
    process: subprocess.Popen[bytes]
    words: IO[bytes]

    def tail(self) -> str:
        """The end of what it wrote."""
        size = os.fstat(self.words.fileno()).st_size
        data = os.pread(self.words.fileno(), TOLD, max(size - TOLD, 0))
        return data.decode("utf-8", "replace").strip()


@dataclass
class Runner:
    """Starts, stops and resumes campaigns from the files in some folders."""

    places: tuple[Path, ...]
    arguments: tuple[str, ...] = ()
    started: dict[str, Started] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def configs(self) -> dict[str, Config]:
        """Every campaign file by its key; of two with one key the first place's."""
        found: dict[str, Config] = {}
        for path in config_files(self.places):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            comments = (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#"))
            found.setdefault(path.stem, Config(path.stem, path, text, next(comments, "")))
        return found

    def start(self, key: str, *, resume: bool) -> Started:
        """Starts a campaign, or goes on with the newest one of its name. Refused where it runs already."""
        with self.lock:
            config = self.configs().get(key)
            if config is None:
                raise KeyError(key)
            old = self.started.get(key)
            if old is not None and old.process.poll() is None:
                raise Refused(f"{key} is running already")
            words = tempfile.TemporaryFile()
            # The campaign must live on when the service ends: a session of its own.
            process = subprocess.Popen(
                self.command(config, resume),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
            self.started[key] = Started(key, process, words)
            return self.started[key]

    def command(self, config: Config, resume: bool) -> list[str]:
        line = [sys.executable, "-m", "fuzz", "campaign", str(config.path), *self.arguments]
        return [*line, "--resume"] if resume else line

    def stop(self, campaign: Campaign) -> None:
        """Asks a campaign's process to end as Ctrl-C would. Refused where it does not run here."""
        descriptor = opened(campaign)
        if descriptor is None:
            raise Refused(f"campaign {campaign.id} does not run on this machine")
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGINT)
        except ProcessLookupError:
            raise Refused(f"campaign {campaign.id} has ended") from None
        finally:
            os.close(descriptor)

    def last_words(self) -> dict[str, str]:
        """What processes that ended by an error wrote last, by config."""
        ended = {key: one for key, one in self.started.items() if one.process.poll() not in (None, 0, 1)}
        return {key: one.tail() for key, one in ended.items()}

    def working(self) -> list[str]:
        """Configs whose process runs now."""
        return [key for key, one in self.started.items() if one.process.poll() is None]


def config_files(places: Iterable[Path]) -> Iterable[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            yield from sorted(path for path in place.glob("*.yaml") if not path.name.startswith("."))


def alive(campaign: Campaign) -> bool:
    """Whether a campaign's process runs on this machine."""
    descriptor = opened(campaign)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def here(campaign: Campaign) -> bool:
    return campaign.host == socket.gethostname()


def opened(campaign: Campaign) -> int | None:
    """A descriptor of the campaign's process, which no other process can take the place of; None where it is gone.

    A process of the same number that is no campaign is another one, started since.
    """
    if not here(campaign) or campaign.pid <= 1:
        return None
    try:
        descriptor = os.pidfd_open(campaign.pid)
    except OSError:
        return None
    try:
        parts = Path(f"/proc/{campaign.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        parts = []
    if b"campaign" in parts:
        return descriptor
    os.close(descriptor)
    return None
