"""Formats numbers and times as pages show them."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from itertools import pairwise

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def count(value: float) -> str:
    """Whole numbers with thin groups of three; an infinity and what is no number as `inf` and `nan`."""
    if not math.isfinite(value):
        return str(value)
    return f"{int(value):,}".replace(",", "\u2009")


def rate(value: float) -> str:
    return count(value) if value >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """Three digits, cut off: what is below 1 does not read as 1."""
    if value is None or not math.isfinite(value * 1000):
        return "inf"
    return f"{math.floor(value * 1000) / 1000:.3f}" if value else ""


def percent(value: float) -> str:
    return f"{100 * value:.1f}\u2009%" if value else ""


def duration(seconds: float) -> str:
    """1 h 20 min, 3 min 5 s, 12 s, inf."""
    if not math.isfinite(seconds):
        return str(seconds)
    whole = int(seconds)
    for (size, unit), (smaller, smaller_unit) in pairwise(UNITS):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {smaller_unit}"
    return f"{whole} s"


def time_ago(wall: float) -> str:
    """How long ago a time since 1970 was; the date where it lies ahead, as a clock that was set back makes it."""
    seconds = time.time() - wall
    if seconds < -60 or not math.isfinite(seconds):
        return timestamp(wall)
    if seconds < 5:
        return "now"
    size, unit = next(each for each in UNITS if seconds >= each[0])
    return f"{int(seconds // size)} {unit} ago"


def timestamp(wall: float) -> str:
    """A time since 1970 in UTC; empty where it is none."""
    try:
        return f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return ""
