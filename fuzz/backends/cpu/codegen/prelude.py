"""Holds the C text that stands before every kernel."""

from __future__ import annotations

from pathlib import Path


def text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


PRELUDE = text("prelude.c") + text("checks.c")
LIBDEVICE = text("libdevice.c")


def prelude(with_libdevice: bool) -> str:
    return PRELUDE + LIBDEVICE if with_libdevice else PRELUDE
