"""Checks what the service shows, where it listens and what it may start, before anything is opened."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fuzz.errors import UsageError

MIN_TOKEN_LENGTH = 16
"""Characters of the shortest token."""


@dataclass(frozen=True)
class Settings:
    """`corpora` are folders of entries, `configs` folders of campaign files or such files, `targets` users' targets.

    With `judge` solutions that are sent are judged, so many at once; files that lie in `judge_files` may be named.
    """

    store: str
    corpora: tuple[Path, ...]
    configs: tuple[Path, ...] = ()
    targets: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8327
    token: str = ""
    backend: str = "auto"
    judge: bool = False
    judge_files: tuple[Path, ...] = ()
    judge_workers: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise UsageError(f"--port must lie between 0 and 65535, not {self.port}")
        if not self.loopback and not self.token:
            raise UsageError(f"--host {self.host} can be reached from elsewhere: give --token or set FUZZ_TOKEN")
        if self.token and (
            len(self.token) < MIN_TOKEN_LENGTH or not self.token.isascii() or not self.token.isprintable()
        ):
            raise UsageError(f"a token has at least {MIN_TOKEN_LENGTH} printable ASCII characters")
        if self.judge and not self.token:
            raise UsageError("--judge runs code that others send: give --token or set FUZZ_TOKEN")
        if self.judge_workers < 1:
            raise UsageError(f"--judge-workers must be at least 1, not {self.judge_workers}")
        for option, folders in (("--judge-files", self.judge_files), ("--targets", self.targets)):
            for folder in folders:
                if not folder.is_dir():
                    raise UsageError(f"{option} {folder} is no folder")
        for folder in self.corpora:
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"--corpus {folder} is no folder")
        for path in self.configs:
            if not path.exists():
                raise UsageError(f"{path} does not exist; give a campaign's file, or --configs a folder of them")

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the service."""
        return is_loopback(f"[{self.host}]" if ":" in self.host else self.host)


def is_loopback(host: str) -> bool:
    """Whether the host of a URL, or a Host header, is this machine's loopback, with or without a port."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port  # A port that is no number raises ValueError.
        plain = host == parts.netloc and parts.username is None
        return plain and (name == "localhost" or ipaddress.ip_address(name).is_loopback)
    except ValueError:
        return False
