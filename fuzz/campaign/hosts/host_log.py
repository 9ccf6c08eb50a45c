"""Keeps the last of what a host writes to standard error, in files of bounded size."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LARGEST = 4 << 20
"""Bytes after which a file is full; the one before it has a name that ends with ``.1``."""


@dataclass
class HostLog:
    """A file that is begun anew when it is full; the full one replaces the one before it.

    What the disk does not take is lost: neither the host nor the campaign fails for it.
    """

    path: Path

    def begin(self) -> None:
        """Empties the log, as a host starts."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(b"")

    def append(self, data: bytes) -> None:
        with suppress(OSError):
            if self.path.stat().st_size > LARGEST:
                os.replace(self.path, self.path.with_suffix(".log.1"))
            with self.path.open("ab") as file:
                file.write(data)

    def take(self) -> bytes:
        """What the log holds, which it then holds no more."""
        try:
            data = self.path.read_bytes()
            self.path.write_bytes(b"")
        except OSError:
            return b""
        return data
