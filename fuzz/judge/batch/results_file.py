"""Keeps judgements in a file, one JSON object a line, so that a batch goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError, os_errors_as
from fuzz.files import append_line
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
            path.open("a").close()
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
        with os_errors_as(UsageError, f"cannot write {self.path}"):
            append_line(self.path, json.dumps({"key": key, **judgement}))
