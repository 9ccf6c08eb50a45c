"""Where a service of the tests has its files, and how its clients are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

TOKEN = "a-token-of-enough-letters"


@dataclass
class ServiceFiles:
    """Where a service's files are."""

    folder: Path
    entry: Path

    @property
    def settings(self) -> dict[str, Any]:
        url = f"sqlite:///{self.folder}/store.sqlite"
        return {"store": url, "corpora": (self.folder / "corpus",), "configs": (self.folder / "configs",)}

    @property
    def key(self) -> str:
        return self.entry.stem


MakeClient = Callable[..., TestClient]
