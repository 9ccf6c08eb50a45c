"""Starts, stops and resumes campaigns as processes of their own, `fuzz campaign CONFIG`, which outlive the service."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO

from fuzz.campaign.config import load_config
from fuzz.campaign.store import Campaign
from fuzz.campaign.store.schema import display_url, parse_url
from fuzz.corpus.codec import strict_yaml
from fuzz.errors import FuzzError, UsageError, one_line
from fuzz.escaping import printable
from fuzz.files import read_file
from fuzz.web.formatting import duration
from fuzz.worker.python_process import program_command

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from fuzz.cli import main
main(sys.argv[1:])
"""
"""`fuzz` that handles SIGINT, which a service that was started in the background of a shell ignores."""
LONG = 3600.0
"""Seconds of a budget above which a campaign is started only after a question."""
LOG_TAIL = 4000
"""Bytes of a process's output that are shown where it ended by an error."""


class ConflictError(FuzzError):
    """A request that cannot be carried out now; the text says why."""


@dataclass(frozen=True)
class ConfigFile:
    """A campaign's file. `key` is its name without the ending, `description` the first line of comment in it.

    `name` is the name of its campaigns, `content` what their store keeps of the file; `error` says why it cannot be
    started. `seconds` is its budget's time, without end where there is none, and `cluster` where it runs.
    """

    key: str
    path: Path
    text: str
    description: str
    name: str = ""
    corpus: str = ""
    error: str = ""
    seconds: float = math.inf
    cluster: str = "local"
    content: str = ""

    @property
    def question(self) -> str:
        """What is asked before it is started; empty where it is short and runs on this machine."""
        if self.cluster == "local" and self.seconds <= LONG:
            return ""
        limit = f"for up to {duration(self.seconds)}" if self.seconds < math.inf else "without a limit of time"
        where = "this machine" if self.cluster == "local" else f"a cluster ({self.cluster})"
        return f"{self.key} runs {limit} on {where}. Start it?"


@lru_cache(maxsize=1024)
def read_config_file(path: Path, store: str, changed: int, size: int) -> ConfigFile:
    """The content of a file that was changed then, and what is wrong with it: another store would not be seen here."""
    text = read_file(path, strict_yaml.LARGEST_FILE).decode("utf-8")
    comments = (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#"))
    config = ConfigFile(printable(path.stem), path, text, next(comments, ""))
    try:
        content = load_config(path)
        same = store_location(content.store) == store_location(store)
        error = "" if same else f"its store is {display_url(parse_url(content.store))}"
    except UsageError as wrong:
        return replace(config, error=one_line(wrong))
    return replace(
        config, name=content.name, corpus=content.corpus, error=error, seconds=content.budget.time or math.inf,
        cluster=content.cluster, content=content.model_dump_json(),
    )  # fmt: skip


@dataclass
class CampaignProcess:
    """A process that this service started, with the file that its output goes to."""

    config: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def read_log_tail(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        data = os.pread(self.log.fileno(), LOG_TAIL, max(size - LOG_TAIL, 0))
        return data.decode("utf-8", "replace").strip()


@dataclass
class CampaignProcesses:
    """The campaigns that can be started from the files in some folders, and those that were."""

    folders: tuple[Path, ...]
    store: str
    started: dict[str, CampaignProcess] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def configs(self) -> dict[str, ConfigFile]:
        """Every campaign file by its key; of two with one key the first folder's. A file is parsed when it changes."""
        files: dict[str, ConfigFile] = {}
        folders = ([folder] if folder.is_file() else sorted(folder.glob("[!.]*.yaml")) for folder in self.folders)
        for path in chain.from_iterable(folders):
            with suppress(OSError, UnicodeDecodeError):
                status = path.stat()
                config = read_config_file(path, self.store, status.st_mtime_ns, status.st_size)
                files.setdefault(config.key, config)
        return files

    def by_length(self) -> dict[str, ConfigFile]:
        """Campaign files by key: the shortest of this machine first, those that cannot be started last."""
        files = sorted(self.configs().values(), key=lambda one: (bool(one.error), one.cluster != "local", one.seconds))
        return {config.key: config for config in files}

    def startable(self) -> dict[str, list[ConfigFile]]:
        """The files that can be started, by the name of their campaigns."""
        found: dict[str, list[ConfigFile]] = {}
        for config in self.configs().values():
            if not config.error:
                found.setdefault(config.name, []).append(config)
        return found

    def start(self, key: str, *, resume: bool) -> CampaignProcess:
        """Starts a campaign, or resumes the newest one of its name.

        KeyError where there is no such file, ConflictError where it cannot be started or runs already.
        """
        with self.lock:
            config = self.configs()[key]
            if config.error:
                raise ConflictError(f"{key} cannot be started: {config.error}")
            previous = self.started.get(key)
            if previous is not None and previous.process.poll() is None:
                raise ConflictError(f"{key} is running already")
            if previous is not None:
                previous.log.close()
            log = tempfile.TemporaryFile()
            # The campaign must live on when the service ends: a session of its own.
            process = subprocess.Popen(
                [*program_command(PROGRAM), "campaign", str(config.path), *(["--resume"] if resume else [])],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            self.started[key] = CampaignProcess(key, process, log)
            return self.started[key]

    def stop(self, campaign: Campaign) -> None:
        """Asks a campaign's process to end as Ctrl-C would. ConflictError where it does not run here."""
        with open_process(campaign) as descriptor:
            if descriptor is None:
                raise ConflictError(f"campaign {campaign.id} does not run on this machine")
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGINT)
            except ProcessLookupError:
                raise ConflictError(f"campaign {campaign.id} has ended") from None

    def error_logs(self) -> dict[str, str]:
        """The end of the output of each process that ended by an error, by config."""
        with self.lock:
            failed = {key: one for key, one in self.started.items() if one.process.poll() not in (None, 0, 1)}
            return {key: started.read_log_tail() for key, started in failed.items()}

    def close(self) -> None:
        """Closes the logs; processes that run go on."""
        with self.lock:
            for started in self.started.values():
                started.log.close()

    def running(self) -> list[str]:
        """Configs whose process runs now."""
        with self.lock:
            return [key for key, started in self.started.items() if started.process.poll() is None]


def file_of(campaign: Campaign, files: list[ConfigFile]) -> ConfigFile | None:
    """The file that goes on with a campaign, among those of its name; None where that is not known.

    One file may have changed since, such as to a larger budget. Of several only the one that the campaign ran is meant.
    """
    own = files if len(files) == 1 else [config for config in files if config.content == campaign.config]
    return own[0] if len(own) == 1 else None


def store_location(url: str) -> str:
    """What identifies a store: of a file its whole path, else the URL without its password."""
    parsed = parse_url(url)
    return str(Path(parsed.database or "").absolute()) if parsed.get_backend_name() == "sqlite" else display_url(parsed)


def is_alive(campaign: Campaign) -> bool:
    """Whether a campaign's process runs on this machine."""
    with open_process(campaign) as descriptor:
        return descriptor is not None


def is_local(campaign: Campaign) -> bool:
    return campaign.host == socket.gethostname()


@contextmanager
def open_process(campaign: Campaign) -> Iterator[int | None]:
    """A descriptor of the campaign's process, which no other process can take the place of; None where it is gone.

    A process of the same number whose command is no campaign is another one, started since.
    """
    with ExitStack() as stack:
        descriptor, arguments = None, b""
        if is_local(campaign) and campaign.pid > 1:
            with suppress(OSError):
                descriptor = os.pidfd_open(campaign.pid)
                stack.callback(os.close, descriptor)
                arguments = Path(f"/proc/{campaign.pid}/cmdline").read_bytes()
        yield descriptor if b"campaign" in arguments.split(b"\0") else None
