"""Holds the C text that stands before every kernel."""

from __future__ import annotations

from pathlib import Path


def read_c(name: str) -> str:
    """The text of a C file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


PRELUDE = read_c("prelude.c") + read_c("checks.c")
LIBDEVICE = read_c("libdevice.c")


def prelude(with_libdevice: bool) -> str:
    return PRELUDE + LIBDEVICE if with_libdevice else PRELUDE
