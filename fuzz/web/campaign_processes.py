"""CampaignProcesses: campaigns as processes of their own, `fuzz campaign CONFIG`, which outlive the service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fuzz.campaign.config import load_config
from fuzz.campaign.store import Campaign
from fuzz.campaign.store.schema import display_url, parse_url
from fuzz.errors import FuzzError, UsageError, one_line

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from fuzz.cli import main
main(sys.argv[1:])
"""
"""`fuzz` with an ear for SIGINT, which a service that was started in the background of a shell ignores."""
TOLD = 4000
"""Characters of a process's last words that are kept."""


class ConflictError(FuzzError):
    """What was asked for cannot be done now; the text says why."""


@dataclass(frozen=True)
class ConfigFile:
    """A campaign's file. `key` is its name without the ending, `told` the first line of comment in it.

    `name` is its campaigns' name, `wrong` says why it cannot be started.
    """

    key: str
    path: Path
    text: str
    told: str
    name: str = ""
    corpus: str = ""
    wrong: str = ""


@dataclass
class CampaignProcess:
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
class CampaignProcesses:
    """Starts, stops and resumes campaigns from the files in some folders."""

    places: tuple[Path, ...]
    store: str
    started: dict[str, CampaignProcess] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def configs(self) -> dict[str, ConfigFile]:
        """Every campaign file by its key; of two with one key the first place's."""
        found: dict[str, ConfigFile] = {}
        for path in config_files(self.places):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            comments = (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#"))
            found.setdefault(path.stem, self._checked(ConfigFile(path.stem, path, text, next(comments, ""))))
        return found

    def _checked(self, config: ConfigFile) -> ConfigFile:
        """With what the file says; a campaign with another store would not be seen here."""
        try:
            given = load_config(config.path)
            wrong = "" if place_of(given.store) == place_of(self.store) else f"its store is {name_of(given.store)}"
        except UsageError as error:
            return replace(config, wrong=one_line(error))
        return replace(config, name=given.name, corpus=given.corpus, wrong=wrong)

    def corpora(self) -> tuple[Path, ...]:
        """The corpus folders of the campaigns that can be started."""
        return tuple(Path(one.corpus) for one in self.configs().values() if not one.wrong)

    def named(self, name: str) -> ConfigFile | None:
        """The file whose campaigns have this name and can be started."""
        found = (config for config in self.configs().values() if config.name == name and not config.wrong)
        return next(found, None)

    def start(self, key: str, *, resume: bool) -> CampaignProcess:
        """Starts a campaign, or goes on with the newest one of its name. Refused where it runs already."""
        with self.lock:
            config = self.configs().get(key)
            if config is None:
                raise KeyError(key)
            if config.wrong:
                raise ConflictError(f"{key} cannot be started: {config.wrong}")
            old = self.started.get(key)
            if old is not None and old.process.poll() is None:
                raise ConflictError(f"{key} is running already")
            if old is not None:
                old.words.close()
            words = tempfile.TemporaryFile()
            # The campaign must live on when the service ends: a session of its own.
            process = subprocess.Popen(
                self.command(config, resume),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
            self.started[key] = CampaignProcess(key, process, words)
            return self.started[key]

    def command(self, config: ConfigFile, resume: bool) -> list[str]:
        line = [sys.executable, "-c", PROGRAM, "campaign", str(config.path)]
        return [*line, "--resume"] if resume else line

    def stop(self, campaign: Campaign) -> None:
        """Asks a campaign's process to end as Ctrl-C would. Refused where it does not run here."""
        descriptor = opened(campaign)
        if descriptor is None:
            raise ConflictError(f"campaign {campaign.id} does not run on this machine")
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGINT)
        except ProcessLookupError:
            raise ConflictError(f"campaign {campaign.id} has ended") from None
        finally:
            os.close(descriptor)

    def last_words(self) -> dict[str, str]:
        """What processes that ended by an error wrote last, by config."""
        ended = {key: one for key, one in self.started.items() if one.process.poll() not in (None, 0, 1)}
        return {key: one.tail() for key, one in ended.items()}

    def close(self) -> None:
        """Lets go of what processes wrote; those that run go on."""
        for one in self.started.values():
            one.words.close()

    def working(self) -> list[str]:
        """Configs whose process runs now."""
        return [key for key, one in self.started.items() if one.process.poll() is None]


def place_of(url: str) -> str:
    """What a store's URL leads to; of a file the whole path."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return str(Path(parsed.database or "").absolute())
    return parsed.render_as_string(hide_password=True)


def name_of(url: str) -> str:
    """The URL without its password."""
    return display_url(parse_url(url))


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
