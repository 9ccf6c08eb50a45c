"""The C text in front of every kernel."""

from __future__ import annotations

from pathlib import Path

PRELUDE = Path(__file__).with_name("prelude.c").read_text(encoding="utf-8")
LIBDEVICE = Path(__file__).with_name("libdevice.c").read_text(encoding="utf-8")


def prelude(body: str) -> str:
    """What this text needs in front of it."""
    return PRELUDE + LIBDEVICE if "nv_" in body else PRELUDE
