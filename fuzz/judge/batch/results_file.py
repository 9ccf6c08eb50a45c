"""Keeps judgements in a file, one JSON object a line, so that a batch goes on where it was interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError, os_errors_as
from fuzz.judge.result.score import CRASHED, OUT_OF_TIME

AGAIN = {CRASHED, OUT_OF_TIME}
"""Codes of what is no judgement, and may go better another time."""


class ResultsFile:
    """The judgements of a file by key. UsageError where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Mapping[str, Any]] = {}
        with os_errors_as(UsageError, f"cannot write {path}"):
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            with path.open("a", encoding="utf-8") as file:
                # A line that was being written when its writer was killed is ended, and means nothing.
                file.write("\n" if text and not text.endswith("\n") else "")
        for line in text.splitlines():
            self._read(line)

    def _read(self, line: str) -> None:
        try:
            value = json.loads(line)
        except ValueError:
            return
        if isinstance(value, dict) and {"key", "verdict", "score", "codes", "reason", "seconds"} <= set(value):
            if not AGAIN & set(value["codes"]):
                self.kept[value["key"]] = value

    def add(self, key: str, judgement: Mapping[str, Any]) -> None:
        """Appends a judgement, which then survives the end of this process."""
        line = json.dumps({"key": key, **judgement}) + "\n"
        with os_errors_as(UsageError, f"cannot write {self.path}"):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
