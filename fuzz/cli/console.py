"""Writes what the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

errors = Console(stderr=True, soft_wrap=True)


def complain(text: str) -> None:
    """One line on standard error."""
    print(f"fuzz: {text}", file=sys.stderr)


def put(text: str) -> None:
    """A result for people on standard output."""
    print(text)


def put_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(value, default=str, allow_nan=False))
