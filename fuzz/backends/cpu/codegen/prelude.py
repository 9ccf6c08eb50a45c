"""The C text in front of every kernel."""

from __future__ import annotations

from pathlib import Path


def text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


PRELUDE = text("prelude.c") + text("checks.c")
LIBDEVICE = text("libdevice.c")


def prelude(body: str) -> str:
    """What this text needs in front of it."""
    return PRELUDE + LIBDEVICE if "nv_" in body else PRELUDE
