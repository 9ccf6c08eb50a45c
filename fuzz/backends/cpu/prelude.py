"""The C text in front of every kernel."""

from __future__ import annotations

from pathlib import Path

PRELUDE = Path(__file__).with_name("prelude.c").read_text(encoding="utf-8")
